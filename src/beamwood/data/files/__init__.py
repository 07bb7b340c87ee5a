"""Tables from files of any format, or from memory, as Polars lazy frames with ids as written."""
