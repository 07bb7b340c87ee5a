"""Which precision the products of a training step run in."""

from __future__ import annotations

import torch

__all__ = ["has_bfloat16"]


def has_bfloat16() -> bool:
    """Does this processor multiply bfloat16 itself (AMX or AVX-512 BF16)? Where it does not, torch emulates it, several
    times slower than float32."""
    capabilities = getattr(torch.cpu, "get_capabilities", None)  # not in older versions of torch
    return capabilities is not None and any(capabilities().get(name, False) for name in ("amx_bf16", "avx512_bf16"))
