"""The DIN scorer as plain arrays, and its search: numpy references, and the native core where it was built."""

from beamwood.kernels.dispatch import live, native, native_level

__all__ = ["live", "native", "native_level"]
