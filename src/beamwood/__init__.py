"""Learn a search tree together with the neural model that searches it."""

__version__ = "0.1.0"
