"""The page of a running service, rendered here, with one small script and one stylesheet."""
