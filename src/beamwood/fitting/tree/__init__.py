"""Trees: the task that trains one, where it starts, and how it is updated."""
