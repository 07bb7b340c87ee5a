"""Whole runs as functions: what the command line does with a log, for Python and for benchmarks."""
