"""How far a step of training moves the weights that terms have for the places of a history."""

__all__ = ["STEP_SCALE"]

STEP_SCALE = 20.0
"""The factor by which a step of Adam moves the weights of seen items and of neighbours' places further than others: the
former start at 0, and have to offset an item's similarity to itself.
"""
