"""Whole runs as functions: the commands of the command line, for Python and for benchmarks."""
