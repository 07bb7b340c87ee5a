"""How far a step of training moves some of the weights."""

__all__ = ["PACE"]

PACE = 20.0
"""A step of Adam moves a weight of what was seen, or of a place's neighbours, so many times as far as another: the
former has to come from 0 to where an item's likeness to itself is made up for."""
