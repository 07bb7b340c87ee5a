"""Trees: the training task, initial tree and weights, and tree updates."""
