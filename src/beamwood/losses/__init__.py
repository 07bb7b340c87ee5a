"""Losses: pure functions of tensors, one value an example; the caller reduces."""
