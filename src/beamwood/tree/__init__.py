"""The immutable search tree and the ways to start one."""

from beamwood.tree.build import category_tree, flat_tree, kmeans_tree, random_tree
from beamwood.tree.tree import Shape, Tree, choose_shape

__all__ = ["Shape", "Tree", "category_tree", "choose_shape", "flat_tree", "kmeans_tree", "random_tree"]
