"""The best model for a log within a time limit: a search over methods, and over blends of fitted ones."""
