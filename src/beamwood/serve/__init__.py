"""Recommendations over HTTP, from a fitted folder; without torch, training or log readers."""
