"""Commands that are killed and resumed; see `run`."""
