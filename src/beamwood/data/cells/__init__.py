"""The values of cells: ids exactly as written, times, decimal numbers, labels, vectors."""
