"""The DIN scorer as plain arrays, and its search: numpy twins, and the native core where it was built."""
