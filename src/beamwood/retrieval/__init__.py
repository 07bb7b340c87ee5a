"""Searchers that answer by index without torch, and the retriever that adds ids and filters."""
