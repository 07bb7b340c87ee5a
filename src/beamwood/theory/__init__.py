"""The papers' theory as runnable code: labels and heaps, sampling distributions, bounds, diagnostics of a tree."""
