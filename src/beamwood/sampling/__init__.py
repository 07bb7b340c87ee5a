"""Samplers: they return ids and their log q, not scores or losses."""
