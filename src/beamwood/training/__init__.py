"""Training steps, the loop around them, and exact resume of interrupted runs."""
