"""Torch modules; none knows the method that trains it."""
