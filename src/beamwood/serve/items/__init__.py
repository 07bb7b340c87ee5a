"""What is learned about items while a service runs: new, available and erased ones."""
