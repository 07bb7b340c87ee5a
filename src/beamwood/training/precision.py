"""The precision of matrix products in training, and flushing of subnormal numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["flushed_subnormals", "has_bfloat16"]


def has_bfloat16() -> bool:
    """Whether this CPU multiplies bfloat16 natively (AMX or AVX-512 BF16); otherwise torch emulates it, several times
    slower than float32.
    """
    capabilities = getattr(torch.cpu, "get_capabilities", None)  # not in older versions of torch
    return capabilities is not None and any(capabilities().get(name, False) for name in ("amx_bf16", "avx512_bf16"))


@contextmanager
def flushed_subnormals() -> Iterator[None]:
    """A context in which subnormal numbers (below 1.2e-38 in float32) are 0, in this thread and those it starts.

    A loss near 0 has gradients of that size, and arithmetic on them is up to eighty times slower.
    """
    before = subnormals_are_flushed()
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def subnormals_are_flushed() -> bool:
    """Whether this thread flushes subnormal numbers to 0."""
    return float(torch.full((1,), 2e-38).div_(4)) == 0
