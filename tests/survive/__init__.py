"""Commands that are killed and go on: see `run`."""
