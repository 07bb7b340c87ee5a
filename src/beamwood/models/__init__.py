"""Models, independent of the methods that train them: torch modules, and passes written once for torch and numpy."""
