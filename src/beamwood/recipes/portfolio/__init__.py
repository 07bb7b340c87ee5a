"""The best that a log can give within a time limit: a search over methods, and over blends of what they fitted."""
