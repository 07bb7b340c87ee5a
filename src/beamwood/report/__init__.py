"""Reports as self-contained HTML pages: they draw what a command has measured and measure nothing themselves."""
