"""The papers' theory as things one can run: labels and heaps, sampling distributions, diagnostics of a tree."""
