"""The searchers by kind and their parts: from a query to the k best items, without torch."""
