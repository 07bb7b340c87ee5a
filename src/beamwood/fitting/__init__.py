"""Fitting: counting, vectors, trees, rankers, and choices made on validation users."""
