"""Ids and their indices, as plain arrays that can be memory-mapped."""
