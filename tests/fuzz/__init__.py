"""Cases drawn by number: see `run`."""
