"""Two stages in `beamwood evaluate`: the errors of each, and the levels at which a tree's beam loses labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from beamwood.blocks import evenly
from beamwood.errors import InputError
from beamwood.words import counted

if TYPE_CHECKING:
    from beamwood.data import Split
    from beamwood.evaluation.stages import StageReport, StagesAtCut
    from beamwood.retrieval.retriever import Retriever
    from beamwood.theory.margin import MarginReport
    from beamwood.types import Searcher

__all__ = ["TwoStages", "check_staged", "first_of", "measure_margins", "measure_stages", "percent_of", "ranks_pairs"]

# The most test users for the margins of a tree.
_MARGIN_QUERIES = 200


@dataclass(frozen=True, slots=True)
class TwoStages:
    """The decomposition on the test queries; `margins` where the first stage is a tree, else None."""

    report: StageReport
    margins: MarginReport | None

    def as_dict(self) -> dict[str, Any]:
        """Both, JSON-able."""
        return self.report.as_dict() | {"margin": None if self.margins is None else self.margins.as_dict()}

    def in_words(self) -> list[str]:
        """Both as lines of text."""
        report = self.report
        lines = [
            f"{self.about()}; {self.taken()}",
            "  " + ", ".join(f"{stage} {scores} scores and {ms} ms a query" for stage, scores, ms in self.costs()),
        ]
        for cut in report.cuts:
            lines += cut_in_words(cut)
        return lines + ([] if self.margins is None else margins_in_words(self.margins))

    def about(self) -> str:
        """The queries, and the retriever's error."""
        report = self.report
        return (
            f"two stages on {_pairs(report.pairs, report.queries)}, seen items removed: the "
            f"retriever misses {report.miss:.4f} with {report.num_candidates} candidates (ceiling {report.ceiling:.4f})"
        )

    def taken(self) -> str:
        """The number of queries for which the ranker also ordered the whole catalogue."""
        return f"the ranker alone on {self.report.one_stage_queries} of these queries (--one-stage-queries)"

    def costs(self) -> list[tuple[str, str, str]]:
        """Stage, scores and milliseconds a query."""
        report = self.report
        return [
            ("retrieval", f"{report.retrieval_scored:,.0f}", f"{1000 * report.retrieval_seconds:.2f}"),
            ("ranking", f"{report.ranking_scored:,.0f}", f"{1000 * report.ranking_seconds:.2f}"),
        ]


def check_staged(folder: str, retriever: Retriever) -> None:
    """Errors: a retriever that is not two stages."""
    from beamwood.retrieval.searchers.blend import Blend

    if not isinstance(retriever.searcher, Blend) or not retriever.searcher.is_staged:
        raise InputError(
            f"--one-stage-queries is for two stages; {folder} holds {retriever.metadata['method']}, so leave it out"
        )


def measure_stages(
    searcher: Searcher, split: Split, cuts: Sequence[int], one_stage_queries: int | None = None
) -> TwoStages | None:
    """The decomposition of a two-stage searcher's errors on the test queries, None for any other searcher.

    `one_stage_queries`: see `evaluation.stages.decompose`.
    """
    from beamwood.evaluation.stages import decompose
    from beamwood.retrieval.searchers.blend import Blend

    if not isinstance(searcher, Blend) or not searcher.is_staged or searcher.num_candidates is None:
        return None
    kept = sorted({k for k in (1, *cuts) if k <= searcher.num_candidates})
    report = decompose(searcher, split.test, ks=kept, one_stage_queries=one_stage_queries)
    return TwoStages(report, measure_margins(searcher, split, searcher.num_candidates))


def measure_margins(searcher: Searcher, split: Split, k: int | None) -> MarginReport | None:
    """The margins of a tree as first stage with k candidates, for evenly sampled test users; None without a tree.

    They are of a full beam, by whatever way the tree is searched; without k it returns all of its beam.
    """
    from beamwood.retrieval.searchers.tree import TreeSearcher

    tree = first_of(searcher)
    if not isinstance(tree, TreeSearcher):
        return None
    from beamwood.theory.margin import margin_report

    labelled = split.test.labelled()
    part = labelled.take(evenly(len(labelled), _MARGIN_QUERIES))
    most = None if k is None else min(k, searcher.num_items)
    return margin_report(tree, part.histories, part.labels, k=most, excluded=part.seen)


def first_of(searcher: Searcher) -> Searcher:
    """The part that finds the candidates: the first part of a blend, else the searcher."""
    from beamwood.retrieval.searchers.blend import Blend

    while isinstance(searcher, Blend):
        searcher = searcher.first
    return searcher


def ranks_pairs(searcher: Searcher) -> bool:
    """Whether it is a ranker, or has one: each pair of a query and an item is scored by itself, which takes long."""
    from beamwood.retrieval.item_vectors import part_with
    from beamwood.retrieval.searchers.ranked import RankingSearcher

    return part_with(searcher, RankingSearcher) is not None


def cut_in_words(cut: StagesAtCut) -> list[str]:
    """The errors at one cut as text; the bound is omitted where undefined."""
    ranked = "no label is a hit" if cut.rank_error is None else f"rank error given a hit {cut.rank_error:.4f}"
    own = f"the retriever's own order {cut.retriever_error:.4f}"
    lines = [f"  at {cut.k}: {ranked}, total error {cut.total_error:.4f}; {own}"]
    if cut.one_stage_error is not None and cut.one_stage_miss is not None:
        word = "no worse than" if cut.two_stages_better else "worse than"
        bound = "" if cut.bound is None else f", bound {cut.bound:.4f}"
        lines.append(
            f"    two stages are {word} the ranker alone (its error {cut.one_stage_error:.4f}) on the same queries: "
            f"miss {cut.one_stage_miss:.4f}{bound}"
        )
    return lines


def margins_in_words(margins: MarginReport) -> list[str]:
    """The levels at which targets are lost, and the margins, as text."""
    lost = ", ".join(f"{level} {share:z.4f}" for level, share in enumerate(margins.lost, start=1))
    quantiles = ", ".join(f"{percent_of(name)} {value:z.4f}" for name, value in margins.quantiles.items())
    return [
        f"  {of_margins(margins)}; lost on level {lost}",
        f"  margin g_f of the labels, lost below 0: {quantiles or 'none has a rival'}",
    ]


def of_margins(margins: MarginReport) -> str:
    """What a full beam finds, in words, and how the tree is searched where that is another way."""
    way, items = margins.way, counted(margins.k, "item")
    pairs = _pairs(margins.targets, margins.queries)
    if way.kind != "beam":
        own = f"this tree is searched by {way.kind}"
    elif max(way.beam_width, margins.k) < margins.beam_width:
        own = f"this tree is searched by a beam of {way.beam_width}"
    else:
        return f"the tree brings {items} in a beam of {margins.beam_width}: {pairs}, {margins.found:.4f} found"
    return f"of {pairs} a full beam of {margins.beam_width} would find {margins.found:.4f} in {items} ({own})"


def _pairs(labels: int, queries: int) -> str:
    return f"{counted(labels, 'label')} of {counted(queries, 'query', 'queries')}"


def percent_of(quantile: str) -> str:
    """ "q05" as "5 %"."""
    return f"{int(quantile[1:])} %"
