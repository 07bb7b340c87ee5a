"""Rankers of pairs, and of what a retriever brings."""
