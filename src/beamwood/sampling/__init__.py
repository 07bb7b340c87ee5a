"""Samplers: ids and their log q, never scores, never a loss."""
