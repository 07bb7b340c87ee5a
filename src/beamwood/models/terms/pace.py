"""The step size of some weights relative to others."""

__all__ = ["PACE"]

PACE = 20.0
"""The factor by which a step of Adam moves the weights of seen items and of neighbours' places further than others: the
former start at 0, and have to offset an item's similarity to itself.
"""
