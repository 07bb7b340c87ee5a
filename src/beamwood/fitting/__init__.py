"""How things are fitted: counting, vectors, trees, rankers, and what is chosen on validation users."""
