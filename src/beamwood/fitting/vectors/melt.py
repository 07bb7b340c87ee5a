"""MELT: two branches beside a fitted sequence model that improve the vectors of rare items and short histories.

Shape legend: B items and users of a step, D width.

Source: "MELT: Mutual Enhancement of Long-Tailed User and Item for Sequential Recommendation". The encoder stays fixed
(the paper trains it further), so rare items' vectors are computed once instead of every epoch, and the branches fit any
encoder.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from beamwood.blocks import evenly
from beamwood.data.split import Split
from beamwood.errors import InputError
from beamwood.fitting.searched_task import SearchedTask
from beamwood.fitting.vectors.fit import fit_vectors
from beamwood.fitting.vectors.item_contexts import Occurrences, encoded_histories, replaced_vectors
from beamwood.fitting.vectors.melt_settings import MeltConfig
from beamwood.fitting.vectors.options import VectorOptions
from beamwood.fitting.vectors.sequence_start import tied_sequence
from beamwood.retrieval.retriever import Retriever
from beamwood.retrieval.searchers.queries import UserBranch
from beamwood.retrieval.searchers.vectors import VectorSearcher
from beamwood.training.budget import Budget, estimated_seconds
from beamwood.training.trainable import Progress

__all__ = ["MeltTask", "fit_melt"]


@dataclass(frozen=True, slots=True)
class BranchBatch:
    """Each branch's inputs [B, D], targets [B, D], and weights [B]."""

    users: tuple[Tensor, Tensor, Tensor]
    items: tuple[Tensor, Tensor, Tensor]


class MeltTask(SearchedTask[BranchBatch]):
    """Learns on frequent items and frequent users, of whom only a few contexts and latest items are given."""

    model: nn.ModuleDict

    def __init__(self, split: Split, config: MeltConfig) -> None:
        train = split.train
        self.config, self.histories = config, train.histories
        self.before = tied_sequence(config.start.folder, split)
        encoder, lengths = self.before.encoder, train.histories.lengths
        self.contexts = Occurrences.of(train.histories, train.num_items, after_others=True)
        self.counts, has_context = train.item_counts, self.contexts.counts > 0
        self.rarest = int(np.quantile(self.counts, config.examples.item_quantile))
        # The encoder reads at most its length, and queries may be truncated to it: a full history is not a short one.
        self.shortest = min(int(np.quantile(lengths[lengths > 0], config.examples.user_quantile)), encoder.length - 1)
        self.tail = np.flatnonzero((self.counts <= self.rarest) & has_context)
        self.head = np.flatnonzero((self.counts > self.rarest) & has_context)
        self.users = np.flatnonzero(lengths > self.shortest)
        if len(self.head) == 0 or len(self.users) == 0:
            raise InputError(
                "no item or no user is above its quantile; lower examples.item_quantile or examples.user_quantile"
            )
        self.num_examples = len(self.head)

    def prepare(self, rng: torch.Generator, budget: Budget) -> None:
        """Sample the contexts, encode them and the histories of frequent users, and initialise the branches."""
        encoder, histories = self.before.encoder, self.histories
        self.contexts = self.contexts.thinned(self._affordable_contexts(budget), rng)
        positions = self.contexts.positions
        self.context_vectors = encoded_histories(
            encoder, histories, histories.indptr[histories.rows[positions]], positions
        )
        ends = histories.indptr[self.users + 1]
        self.user_vectors = encoded_histories(encoder, histories, histories.indptr[self.users], ends)
        width = encoder.vectors.shape[1]
        self.model = nn.ModuleDict({"user": nn.Linear(width, width), "item": nn.Linear(width, width)})
        for parameter in self.model.parameters():
            nn.init.uniform_(parameter, -(width**-0.5), width**-0.5, generator=rng)

    def _affordable_contexts(self, budget: Budget) -> int:
        """The contexts an item: `examples.max_contexts`, or fewer that can be encoded in half of the time left."""
        most, counts, histories = self.config.examples.max_contexts, self.contexts.counts, self.histories
        if not budget.limited:
            return most
        positions = self.contexts.positions

        def encode(num: int) -> None:
            some = positions[evenly(len(positions), num)]
            encoded_histories(self.before.encoder, histories, histories.indptr[histories.rows[some]], some)

        every = int(np.minimum(counts, most).sum())
        estimate = estimated_seconds(encode, every, budget.clock) / max(every, 1)
        room = 0.5 * budget.left / max(estimate, 1e-9) - len(self.users)
        budget.require(estimate * (len(self.users) + int((counts > 0).sum())))
        fewer = most
        while fewer > 1 and np.minimum(counts, fewer).sum() > room:
            fewer = fewer * 2 // 3
        if fewer < most:
            budget.leave_out(f"{fewer} of {most} contexts of an item are encoded: all take {estimate * every:.0f} s")
        return fewer

    def batch(self, rows: NDArray[np.int64], rng: torch.Generator, progress: Progress) -> BranchBatch:
        """The inputs and targets of both branches.

        Users: a few latest items of random users, for the vectors of their whole histories. Items: a few random
        contexts of the given items, for their vectors.
        """
        count, steps = len(rows), self.config.optimiser.decay_steps
        # The curriculum ends with the decay of the learning rate.
        fraction = progress.fraction if steps is None else min(progress.step / steps, 1.0)
        chosen = torch.randint(len(self.users), (count,), generator=rng).numpy()
        shown = torch.randint(1, max(self.shortest, 1) + 1, (count,), generator=rng).numpy()
        ends = self.histories.indptr[self.users[chosen] + 1]
        short = encoded_histories(self.before.encoder, self.histories, ends - shown, ends)
        lengths = self.histories.lengths
        user_weights = curriculum(lengths[self.users[chosen]], self.shortest, int(lengths.max()), fraction)
        items = self.head[rows]
        most = torch.randint(1, max(self.rarest, 1) + 1, (count,), generator=rng).numpy()
        of, places = self.contexts.draw(items, most, rng)
        item_weights = curriculum(self.counts[items], self.rarest, int(self.counts.max()), fraction)
        vectors = self.before.encoder.vectors[items]
        return BranchBatch(
            tuple(map(torch.from_numpy, (short, self.user_vectors[chosen], user_weights))),  # type: ignore[arg-type]
            tuple(map(torch.from_numpy, (self.mean_contexts(of, places, count), vectors, item_weights))),  # type: ignore[arg-type]
        )

    def mean_contexts(self, rows: NDArray[np.int64], places: NDArray[np.int64], count: int) -> NDArray[np.float32]:
        """float32[B, D], the mean of each row's contexts; `rows` ascending, each with at least one."""
        sums: NDArray[np.float32] = np.add.reduceat(
            self.context_vectors[places], np.searchsorted(rows, np.arange(count)), axis=0
        )
        counts = np.bincount(rows, minlength=count).astype(np.float32)
        return np.asarray(sums / counts[:, None], np.float32)

    def loss(self, batch: BranchBatch, rng: torch.Generator) -> Tensor:
        """[B], both branches' weighted squared errors."""

        def of(name: str, part: tuple[Tensor, Tensor, Tensor]) -> Tensor:
            given, wanted, weights = part
            errors: Tensor = (self.model[name](given) - wanted).square().mean(dim=1)
            return weights * errors

        return of("user", batch.users) + of("item", batch.items)

    @torch.no_grad()
    def searcher(self) -> VectorSearcher:
        """The fitted model with rare items' vectors from their contexts, and the user branch for short histories."""
        rows = np.repeat(np.arange(len(self.tail)), self.contexts.counts[self.tail])
        # There may be no rare item; places are sorted by item.
        places = np.flatnonzero(np.isin(self.histories.items[self.contexts.positions], self.tail))
        means = torch.from_numpy(self.mean_contexts(rows, places, len(self.tail)))
        vectors = self.model["item"](means).numpy()
        user = self.model["user"]
        assert isinstance(user, nn.Linear)
        branch = UserBranch(user.weight.numpy().copy(), user.bias.numpy().copy(), self.shortest)
        return replaced_vectors(self.before, self.tail, vectors, branch)


def curriculum(count_B: NDArray[np.int64], threshold: int, largest: int, fraction: float) -> NDArray[np.float32]:
    """[B], `|sin(pi/2 fraction + pi/2 (n - t - 1) / (n_max - t - 1))|`: the most frequent first, then the others."""
    place = (count_B - threshold - 1) / max(largest - threshold - 1, 1)
    return np.abs(np.sin(np.pi / 2 * (fraction + place))).astype(np.float32)


def fit_melt(split: Split, config: MeltConfig, **options: Unpack[VectorOptions]) -> Retriever:
    """Train both branches on `split.train`, keeping those that are best on `split.valid`.

    Errors: `InputError` without `start.folder`, on one of another log or split, and on one with untied vectors.
    """
    return fit_vectors(MeltTask(split, config), split, config, method="melt", **options)
