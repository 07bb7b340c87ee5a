"""Random cases by number; see `run`."""
