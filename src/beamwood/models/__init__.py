"""Torch modules, independent of the methods that train them."""
