"""One step, the loop around it, and what lets an interrupted run go on as if nothing had happened."""
