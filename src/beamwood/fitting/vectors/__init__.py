"""Methods whose scores are inner products of vectors."""
