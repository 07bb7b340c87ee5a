"""Searchers that answer by index without torch, and the retriever that puts ids and filters around them."""
