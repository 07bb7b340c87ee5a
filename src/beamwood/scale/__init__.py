"""Adapters to engines that run work on several machines."""
