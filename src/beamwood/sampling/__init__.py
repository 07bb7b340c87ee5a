"""Samplers: they return ids and their log q; those from a batch return losses, for the reason that `in_batch` gives."""
