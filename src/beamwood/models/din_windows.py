"""The windows of DIN's history, oldest first, the last of which ends at the latest interaction.

Shape legend: B rows, L history length, M nodes a row, D width, T windows, F width of the first MLP layer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["projected_window_sums", "without_empty_windows"]


def without_empty_windows(windows: Sequence[int], leaves_BL: Tensor) -> Tensor:
    """The histories without the oldest windows that are empty in all of them; these add nothing."""
    reached = torch.nonzero((leaves_BL >= 0).any(dim=0))
    first = int(reached[0]) if len(reached) else leaves_BL.shape[1] - 1
    starts = np.cumsum((0, *_latest_windows(windows, leaves_BL.shape[1])[:-1]))
    return leaves_BL[:, int(starts[starts <= first][-1]) :]


def projected_window_sums(
    weights_BML: Tensor, a_BLD: Tensor, weight_FTD: Tensor, windows: Sequence[int], window_of_place: Tensor
) -> Tensor:
    """[B, M, F]: `sum_t W_t z_t` with `z_t` the sum of `weight_l a_l` over window t (DTR, equation 3).

    As `sum_l weight_l (W_t(l) a_l)`, which builds no sums. `window_of_place` int64: the window of each interaction.
    """
    if a_BLD.device.type == "cpu":
        latest = _latest_windows(windows, a_BLD.shape[1])
        latest_FTD, parts = weight_FTD[:, -len(latest) :], torch.split(a_BLD, list(latest), dim=1)
        each = [functional.linear(part, latest_FTD[:, window]) for window, part in enumerate(parts)]
        projected_BLF = torch.cat(each, dim=1)
    else:
        # One product over all places: on a GPU launching a product for each window takes longer than computing it.
        by_place_FLD = weight_FTD.index_select(1, window_of_place[-a_BLD.shape[1] :])
        projected_BLF = torch.einsum("bld,fld->blf", a_BLD, by_place_FLD)
    return torch.bmm(weights_BML, projected_BLF)


def _latest_windows(windows: Sequence[int], length: int) -> tuple[int, ...]:
    """The windows of the latest `length` interactions."""
    ends = np.cumsum(windows[::-1])
    return tuple(windows[-(int(np.searchsorted(ends, length)) + 1) :])
