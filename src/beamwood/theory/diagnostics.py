"""Diagnostics of a tree retriever: heap violations, recall by level, regret, calibration, sampling divergence.

Shape legend: B queries, n nodes of a level, H levels, W labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beamwood.arguments import naming_arguments
from beamwood.errors import InputError
from beamwood.kernels.links import log_softmax
from beamwood.ragged import indptr_of
from beamwood.retrieval.searchers.tree import TreeSearcher
from beamwood.theory.margin import margin_report
from beamwood.theory.sampling import kl_divergence, path_log_q
from beamwood.tree import Shape
from beamwood.types import FloatArray, Hits, ItemLists, Query, SearchOptions, pairs_in

__all__ = ["BeamReport", "CalibrationBin", "LevelReport", "TreeReport", "diagnose"]

# Diagnostics that need every score of a level are left out for levels with more nodes than this.
MOST_NODES = 16384
BINS = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)


@dataclass(frozen=True, slots=True)
class CalibrationBin:
    """Pairs of a query and a node whose predicted probability is in [low, high): their number `nodes`, the mean of
    `predicted`, and `observed`, the mean share of the query's labels below the node.
    """

    low: float
    high: float
    nodes: int
    predicted: float
    observed: float


@dataclass(frozen=True, slots=True)
class LevelReport:
    """One level; values that need all its scores are None where it has more than 16,384 nodes.

    `recall`: share of the labels whose ancestor is in a beam of the model's width; `lost`: share lost on this level.
    `heap_violations`: share of the nodes whose score differs by more than `heap_tolerance` from the best of their
    children's plus a constant. A score is a logit, or along a path a log-probability; the constant is the median of
    these gaps for each query.

    `order_violations`: share of pairs of nodes whose own scores order them differently from their best children's.
    `calibration`: the report's `probability` of a node against the share of a query's labels below it, which is the
    probability that one target is there; `calibration_error`: half the sum over bins of |predicted - observed| mass, at
    most 1 where a level's probabilities sum to 1. `kl_tree`, `kl_uniform`: divergence in nats of the sampling
    distribution from the level's softmax, mean over queries; None where the scorer was not trained by that softmax.
    """

    level: int
    nodes: int
    recall: float
    lost: float
    heap_violations: float | None = None
    order_violations: float | None = None
    calibration_error: float | None = None
    calibration: tuple[CalibrationBin, ...] | None = None
    kl_tree: float | None = None
    kl_uniform: float | None = None


@dataclass(frozen=True, slots=True)
class BeamReport:
    """A beam of one width against exact search: the mean of `scored_nodes` a query; `overlap`, the share of the k best
    items that it finds; `regret`, the mean score that it loses at a place of the list, in the unit of scores; `recall`,
    the mean share of a query's labels that it finds.
    """

    beam_width: int
    scored_nodes: float
    overlap: float
    regret: float
    recall: float


@dataclass(frozen=True, slots=True)
class TreeReport:
    """The diagnostics of one tree on some queries; `exact` is brute force over all leaves.

    `probability` names what was calibrated, None where scores only order items; `heap_tolerance` defines a heap
    violation, in the `unit` of scores. `margin`: quantiles over labels of the margin g_f in the beam, "q05" to "q95",
    and "found", the share at 0 or above.
    """

    queries: int
    k: int
    beam_width: int
    heap_tolerance: float
    probability: str | None
    unit: str
    levels: tuple[LevelReport, ...]
    margin: dict[str, float]
    beams: tuple[BeamReport, ...]
    exact: BeamReport

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@naming_arguments
def diagnose(
    searcher: TreeSearcher,
    histories: ItemLists,
    labels: ItemLists,
    *,
    k: int = 20,
    widths: Sequence[int] = (20, 50, 150, 400),
    heap_tolerance: float = 0.5,
    seed: int = 0,
) -> TreeReport:
    """Diagnose a tree on queries: one row each of `histories` and of `labels`, the items that followed; no row of
    labels is empty.

    `widths` of beams that return lists of k, so none is below k; `heap_tolerance` is in the unit of scores; `seed`
    draws the pairs of nodes for `order_violations`. Source: DTR, equation 26 (a heap up to a factor),
    theorem 3, proposition 5 and corollary 1 (from sampling to softmax); two-stage bounds, proposition 4.3 (lost
    targets). Errors: a history without labels, indices outside the catalogue, k below 1 or a width below k.
    """
    if len(histories) != len(labels) or len(labels) == 0 or labels.lengths.min() == 0:
        raise InputError(
            f"{len(histories)} histories and {len(labels)} rows of labels; give one non-empty row a history"
        )
    k, labels = min(k, searcher.num_items), labels.distinct()
    if min(widths, default=k) < k:
        raise InputError(f"widths={min(widths)} is below {k}, the length of a list; give {k} or more")
    rng = np.random.default_rng(seed)
    # First, as it checks the indices of both.
    margins = margin_report(searcher, histories, labels)
    query = Query.of(histories)
    exact = searcher.exact(query, k)
    beams = []
    for width in sorted(set(widths)):
        hits = searcher.beam(query, k, SearchOptions(beam_width=width))
        beams.append(against_exact(width, hits, exact, labels))
    whole = against_exact(searcher.num_items, exact, exact, labels)
    levels = level_reports(searcher, histories, labels, heap_tolerance, rng)
    return TreeReport(
        queries=len(histories),
        k=k,
        beam_width=searcher.beam_width,
        heap_tolerance=heap_tolerance,
        probability=searcher.link.probability,
        unit=searcher.link.unit,
        levels=tuple(levels),
        margin={"found": margins.found} | margins.quantiles,
        beams=tuple(beams),
        exact=whole,
    )


def against_exact(width: int, hits: Hits, exact: Hits, labels: ItemLists) -> BeamReport:
    """A beam's answers against the exact ones."""
    items_BK, best_BK = hits.items, exact.items
    same = (items_BK[:, :, None] == best_BK[:, None, :]) & (items_BK[:, :, None] >= 0)
    found = [np.isin(row, labels[i]).sum() / len(labels[i]) for i, row in enumerate(items_BK)]
    real = (items_BK >= 0) & (best_BK >= 0)
    missed = np.where(real, exact.scores - np.where(real, hits.scores, 0), 0).sum() / max(1, real.sum())
    overlap = same.any(axis=2).sum() / max(1, (best_BK >= 0).sum())
    return BeamReport(width, float(hits.scored.mean()), float(overlap), float(missed), float(np.mean(found)))


def level_reports(
    searcher: TreeSearcher, histories: ItemLists, labels: ItemLists, tolerance: float, rng: np.random.Generator
) -> list[LevelReport]:
    """Each level's report, level 1 first."""
    tree, shape = searcher.tree, searcher.tree.shape
    leaves = tree.leaves_of(histories.padded(searcher.weights.history_length))
    label_leaves = tree.leaf_of_item[labels.items].astype(np.int64)
    scores: list[FloatArray] = []
    for level in range(1, shape.depth + 1):
        if shape.level_size(level) <= MOST_NODES:
            scores.append(whole_level(searcher, leaves, level))
    link = searcher.link
    log_q = path_log_q(shape, scores) if link.sum_to_one else []
    reports, recall_above = [], 1.0
    for level in range(1, shape.depth + 1):
        recall = recall_of(searcher, leaves, labels, label_leaves, level)
        facts: dict[str, Any] = {}
        if level <= len(scores) and link.log_probabilities is not None:
            values, observed = scores[level - 1], labels_below(shape, labels, label_leaves, level)
            bins, error = calibration(np.exp(link.log_probabilities(values)), observed, np.isfinite(values))
            facts = {"calibration": bins, "calibration_error": error}
        if level <= len(log_q):
            facts |= divergences(scores[level - 1], log_q[level - 1])
        if level < len(scores):
            facts |= heap_gaps(scores[level - 1], scores[level], tolerance, rng)
        reports.append(LevelReport(level, shape.level_size(level), recall, recall_above - recall, **facts))
        recall_above = recall
    return reports


def whole_level(searcher: TreeSearcher, leaves_BL: NDArray[np.int32], level: int) -> FloatArray:
    """float64[B, n] scores of all nodes of a level, -inf where no item stands below."""
    size = searcher.tree.shape.level_size(level)
    nodes = np.broadcast_to(np.arange(size, dtype=np.int32), (len(leaves_BL), size))
    scores = searcher.core.score(leaves_BL, nodes, level=level).astype(float)
    scores[:, searcher.tree.live_counts[level] == 0] = -np.inf
    return scores


def divergences(scores_Bn: FloatArray, log_q_Bn: FloatArray) -> dict[str, float]:
    """KL(q || softmax of the level) for tree walks q of log-probability `log_q_Bn` and for uniform draws of nodes."""
    log_p, live = log_softmax(scores_Bn), np.isfinite(scores_Bn)
    uniform = np.where(live, -np.log(live.sum(axis=1, keepdims=True)), -np.inf)
    return {
        "kl_tree": float(kl_divergence(log_q_Bn, log_p).mean()),
        "kl_uniform": float(kl_divergence(uniform, log_p).mean()),
    }


def recall_of(
    searcher: TreeSearcher, leaves_BL: NDArray[np.int32], labels: ItemLists, label_leaves: NDArray[np.int64], level: int
) -> float:
    """Share of a query's labels, mean over queries, whose ancestor on `level` is in the beam."""
    tree, size = searcher.tree, searcher.tree.shape.level_size(level)
    width = min(searcher.beam_width, size)
    beam = searcher.core.beam(leaves_BL, beam_width=width, k=width, live=tree.live_counts[: level + 1]).leaves
    nodes, rows = tree.shape.ancestors(label_leaves, level), labels.rows
    held = ItemLists(indptr_of((beam >= 0).sum(axis=1)), beam[beam >= 0])
    share = np.bincount(rows, pairs_in(rows, nodes, held), minlength=len(leaves_BL)) / labels.lengths
    return float(share.mean())


def labels_below(shape: Shape, labels: ItemLists, label_leaves: NDArray[np.int64], level: int) -> FloatArray:
    """[B, n]: the share of each query's labels below each node of a level."""
    size = shape.level_size(level)
    flat = labels.rows * size + shape.ancestors(label_leaves, level)
    counts = np.bincount(flat, minlength=len(labels) * size).reshape(len(labels), size)
    share: FloatArray = counts / labels.lengths[:, None]
    return share


def heap_gaps(
    scores_Bn: FloatArray, below_Bm: FloatArray, tolerance: float, rng: np.random.Generator
) -> dict[str, float]:
    """How far a level's scores are from the best of the children's, up to a constant for each query."""
    best = below_Bm.reshape(*scores_Bn.shape, -1).max(axis=2)
    live = np.isfinite(scores_Bn[0]) & np.isfinite(best[0])
    own, best = scores_Bn[:, live], best[:, live]
    gap = own - best
    off = np.abs(gap - np.median(gap, axis=1, keepdims=True)) > tolerance
    one, other = rng.integers(0, own.shape[1], (2, 2000))
    pairs = (own[:, one] - own[:, other]) * (best[:, one] - best[:, other])
    distinct = pairs[:, one != other]
    order = float((distinct < 0).mean()) if distinct.size else 0.0
    return {"heap_violations": float(off.mean()), "order_violations": order}


def calibration(
    predicted_Bn: FloatArray, observed_Bn: FloatArray, live_Bn: NDArray[np.bool_]
) -> tuple[tuple[CalibrationBin, ...], float]:
    """Bins by predicted probability, and half the sum of the absolute differences of predicted and observed mass."""
    place = np.clip(np.searchsorted(BINS, predicted_Bn, side="right") - 1, 0, len(BINS) - 2)
    bins, error = [], 0.0
    for number in range(len(BINS) - 1):
        inside = live_Bn & (place == number)
        count = int(inside.sum())
        if count:
            predicted, observed = float(predicted_Bn[inside].mean()), float(observed_Bn[inside].mean())
            bins.append(CalibrationBin(BINS[number], BINS[number + 1], count, predicted, observed))
            error += abs(predicted - observed) * count / len(predicted_Bn) / 2
    return tuple(bins), error
