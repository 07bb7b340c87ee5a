"""Item columns: what is known about items, and the conditions on them that filter answers."""
