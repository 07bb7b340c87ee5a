"""The validation of a ranker by the sampled protocol: each label is ranked among drawn items."""

from __future__ import annotations

from typing import Any

from beamwood.data.queries import Queries
from beamwood.errors import InputError, nearest
from beamwood.evaluation.sampled import NUM_NEGATIVES, SAMPLED_METRICS, Sampled, evaluate_sampled

__all__ = ["SampledMeasure"]

# The cuts, those longer than a list left out.
_CUTS = (5, 10, 20)


class SampledMeasure:
    """Metrics of a searcher on fixed lists for a fixed draw of queries; a `fitting.validation.Measure`.

    Names as "sampled/ndcg@10". Each label is ranked among 99 drawn items. Where the catalogue leaves a user fewer, all
    lists have that length. Errors: lists too short for any cut, and an unknown `monitor`.
    """

    is_cut = False

    def __init__(self, queries: Queries, num_items: int, *, num_users: int, seed: int, monitor: str) -> None:
        self.queries, self.num_items, self.seed = queries.sample(num_users, seed=seed), num_items, seed
        left = num_items - int(self.queries.seen.union(self.queries.labels).lengths.max(initial=0))
        self.num_negatives = min(NUM_NEGATIVES, left)
        self.cuts = [k for k in _CUTS if k <= self.num_negatives + 1]
        if not self.cuts:
            raise InputError(
                f"a validation user leaves {left} of {num_items} items to draw, too few for choose.protocol=sampled; "
                "set choose.protocol=full and choose.monitor=removed/ndcg@20"
            )
        names = [f"sampled/{metric}@{k}" for metric in SAMPLED_METRICS for k in self.cuts]
        if monitor not in names:
            raise InputError(f"choose.monitor='{monitor}' is not measured{nearest(monitor, names)}")
        self._lists: dict[int | None, Sampled] = {None: self._drawn(self.queries)}

    def __len__(self) -> int:
        return len(self.queries)

    def __call__(self, searcher: Any, num: int | None = None) -> dict[str, float]:
        """The metrics of all queries, or of `num` random ones, whose lists are then drawn differently."""
        if num not in self._lists:
            self._lists[num] = self._drawn(self.queries.sample(num or 0, seed=self.seed))
        values = evaluate_sampled(searcher, self._lists[num], ks=self.cuts)
        return {f"sampled/{name}": float(column.mean()) for name, column in values.items()}

    def _drawn(self, queries: Queries) -> Sampled:
        return Sampled(queries, self.num_items, num_negatives=self.num_negatives, seed=self.seed)
