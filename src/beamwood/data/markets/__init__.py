"""Synthetic markets whose optimum is known."""
