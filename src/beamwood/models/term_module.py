"""A term of the score in training: its arrays as parameters and buffers, with the same score function as in search."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from beamwood.kernels.terms import Counted, Term, TermArrays, TermQuery, checked_scores
from beamwood.tree.tree import Shape
from beamwood.types import IndexArray

__all__ = ["TermModule"]


class TermModule(nn.Module):
    """`term` with its arrays: learned ones are parameters, the others buffers.

    Arrays that search does not need are recomputed at a start; checkpoints store them only where the tree may change
    (`moves`).
    """

    def __init__(self, term: Term, shape: Shape, history_length: int, *, moves: bool = False) -> None:
        super().__init__()
        self.term, self.shape = term, shape
        for name, array in term.arrays(shape, history_length).items():
            # Copied for the alignment that torch's kernels expect.
            tensor = torch.from_numpy(array).clone()
            if name in term.learned:
                self.register_parameter(name, nn.Parameter(tensor))
            else:
                self.register_buffer(name, tensor, persistent=moves or name not in term.training)

    def held(self) -> dict[str, Tensor]:
        """The term's arrays as tensors."""
        return {name: tensor for name, tensor in (self._parameters | self._buffers).items() if tensor is not None}

    def forward(self, query: TermQuery) -> Tensor:
        """float32[B, M], added to the scores."""
        with torch.autocast(query.leaves.device.type, enabled=False):
            added: Tensor = self.term.score(self.term.weights(self.held()), query)
            checked_scores(self.term, added, query)
            return added

    @torch.no_grad()
    def change(self, change: Callable[[Mapping[str, NDArray[Any]]], None]) -> None:
        """Let `change` modify the arrays, passed as numpy arrays."""
        held = self.held()
        arrays = {name: tensor.detach().cpu() for name, tensor in held.items()}
        change({name: array.numpy() for name, array in arrays.items()})
        for name, tensor in held.items():
            # On a CPU both share memory.
            if tensor.data_ptr() != arrays[name].data_ptr():
                tensor.copy_(arrays[name])

    def start(self, counted: Counted) -> None:
        """See `Term.start`."""
        self.change(lambda held: self.term.start(held, counted))

    def start_unsaved(self, counted: Counted) -> None:
        """Recompute only the arrays that checkpoints omit."""
        unsaved = self._non_persistent_buffers_set
        if unsaved:
            kept = {name: tensor.detach().clone() for name, tensor in self.held().items() if name not in unsaved}
            self.start(counted)
            with torch.no_grad():
                for name, tensor in kept.items():
                    self.held()[name].copy_(tensor)

    def move(self, place: IndexArray) -> None:
        """See `Term.move`."""
        self.change(lambda held: self.term.move(held, place, self.shape))

    @torch.no_grad()
    def export(self) -> TermArrays:
        """Plain arrays for search."""
        weights = self.term.weights(self.held())
        kept = {name: weights[name].detach().cpu().contiguous() for name in self.term.kept()}
        # Fixed arrays may be large, and are not copied.
        arrays = {name: (part.clone() if name in self.term.learned else part).numpy() for name, part in kept.items()}
        return TermArrays(self.term, arrays)
