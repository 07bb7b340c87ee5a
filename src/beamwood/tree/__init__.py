"""The immutable search tree and its initial forms."""

from beamwood.tree.build import category_tree, flat_tree, kmeans_tree, random_tree, tree_of_codes
from beamwood.tree.tree import Shape, ShapeName, Tree, choose_shape

__all__ = [
    "Shape",
    "ShapeName",
    "Tree",
    "category_tree",
    "choose_shape",
    "flat_tree",
    "kmeans_tree",
    "random_tree",
    "tree_of_codes",
]
