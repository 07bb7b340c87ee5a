"""Training that continues from a fitted sequence model."""

from __future__ import annotations

import torch

from beamwood.data.split import Split
from beamwood.errors import InputError
from beamwood.fitting.fitted import load_fitted, method_of
from beamwood.fitting.vectors.sequence import SequenceTask
from beamwood.fitting.vectors.settings import ContinuedConfig
from beamwood.models.sequence import ProjectedItems, SequenceModel
from beamwood.retrieval.searchers.blend import sole_part
from beamwood.retrieval.searchers.queries import EncodedHistory
from beamwood.retrieval.searchers.vectors import VectorSearcher
from beamwood.training.budget import Budget
from beamwood.training.checkpoint import check_tensors

__all__ = ["ContinuedTask", "load_start", "tied_sequence"]


class ContinuedTask(SequenceTask):
    """The encoder's task, which may start from all weights of the model in `start.folder`."""

    config: ContinuedConfig

    def __init__(self, split: Split, config: ContinuedConfig) -> None:
        super().__init__(split.train, config)
        self.split = split

    def prepare(self, rng: torch.Generator, budget: Budget) -> None:
        """As the encoder's task; then the weights of the fitted model replace the initial ones."""
        super().prepare(rng, budget)
        if self.config.start.folder is not None:
            load_start(self.model, self.config.start.folder, self.split)

    def start_items(self, seed: int, budget: Budget) -> None:
        """As the encoder's task, unless all weights are those of a fitted model."""
        if self.config.start.folder is None:
            super().start_items(seed, budget)


def fitted_sequence(start: str, split: Split) -> EncodedHistory:
    """The encoder of a fitted sequence model of the same data and split, with MELT's user branch if it has one."""
    fitted = load_fitted(start, split)
    searcher = sole_part(fitted.searcher)
    if isinstance(searcher, VectorSearcher):
        queries = searcher.queries
        # A tower's input vectors differ from those that are searched.
        if isinstance(queries, EncodedHistory) and queries.encoder.vectors is searcher.vectors:
            return queries
    raise InputError(f"start.folder='{start}' holds {method_of(fitted)}; give a fitted sequence model, e.g. sasrec")


def tied_sequence(start: str | None, split: Split) -> EncodedHistory:
    """The fitted model in the folder `start` to which a method gives other item vectors.

    Errors: a folder without such a model, and one whose input vectors differ from those that are searched.
    """
    assert start is not None
    before = fitted_sequence(start, split)
    if "outputs.weight" in before.encoder.arrays:
        raise InputError("the fitted model has model.tied=false; fit it with true, so that an item has one vector")
    return before


def load_start(model: SequenceModel, start: str, split: Split) -> None:
    """Give `model` the weights of the fitted sequence model in the folder `start`, which must have its sizes.

    Errors: a model of another encoder or of other sizes, or with MELT's branch.
    """
    before = fitted_sequence(start, split)
    encoder = before.encoder
    if before.branch is not None:
        raise InputError(
            f"start.folder='{start}' holds MELT's user branch, which cannot be trained further; give the model that "
            "MELT was fitted on, and fit melt on the result"
        )
    if encoder.name != model.name:
        raise InputError(
            f"start.folder='{start}' holds a {encoder.name}; set model.encoder={encoder.name}, or give a {model.name}"
        )
    sizes = model.sizes | {"length": model.length}
    for name, theirs in (encoder.sizes | {"length": encoder.length}).items():
        if theirs != sizes[name]:
            raise InputError(
                f"start.folder='{start}' was fitted with {name}={theirs}, not {name}={sizes[name]}; set "
                f"model.{name}={theirs}"
            )
    weights = {name: torch.from_numpy(array.copy()) for name, array in encoder.arrays.items()}
    if isinstance(model.items, ProjectedItems):
        # These vectors are computed from the item table's column.
        del weights["items.weight"]
    try:
        check_tensors(weights, model.state_dict())
    except ValueError as error:
        raise InputError(
            f"start.folder='{start}' has other sizes ({error}); set model.width, length, num_blocks, tied, item_column "
            "and the like as it was fitted with"
        ) from None
    model.load_state_dict(weights)
