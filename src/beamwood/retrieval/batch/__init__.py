"""Answers for many users into one file, in groups, so that a job can be resumed."""
