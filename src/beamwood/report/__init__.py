"""Reports as pages that stand alone: what a command has measured, drawn; they measure nothing themselves."""
