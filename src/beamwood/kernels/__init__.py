"""The DIN scorer as plain arrays, and its search: numpy references, and the native core where it was built."""

from beamwood.kernels.dispatch import active_kernels, native, native_level

__all__ = ["active_kernels", "native", "native_level"]
