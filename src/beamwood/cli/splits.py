"""The split of a command, with notes on what it measures badly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from beamwood.steps import tell
from beamwood.words import counted

if TYPE_CHECKING:
    from beamwood.data import Dataset, Split

__all__ = ["load_split"]

# Fewer validation or test users leave much to chance.
_FEW_USERS = 30


def load_split(dataset: Dataset, name: str, options: dict[str, Any]) -> Split:
    """The named split; its rule is printed on stderr."""
    from beamwood.data import SPLITS

    split = SPLITS[name](dataset, **options)
    tell(f"split: {split.rule}")
    for note in (_of_few_users(split), _of_seen_labels(split), _of_new_items(split)):
        if note is not None:
            tell(note)
    return split


def _of_few_users(split: Split) -> str | None:
    """A note where few users validate or test, and another split would have many more."""
    valid, test, lengths = len(split.valid), len(split.test), split.dataset.histories.lengths
    better = {
        "users": ("leave-one-out", int((lengths >= 3).sum())),
        "time": ("sessions", int((lengths >= 2).sum() // 10)),
    }
    other, others = better.get(split.name, ("", 0))
    if min(valid, test) >= _FEW_USERS or others < 2 * max(valid, test):
        return None
    choose, tests = counted(valid, "user chooses", "users choose"), counted(test, "tests", "test")
    return f"{choose} settings and {tests}, which is few: a fit with --split {other} has {others:,} of each"


def _of_seen_labels(split: Split) -> str | None:
    """A note where at least half of the labels were seen before."""
    seen, labels = split.test.labels_seen, len(split.test.labels.items)
    if 2 * seen < labels:
        return None
    read = split.dataset.report.get("log", {})
    repeats = read.get("duplicates", 0) and not read.get("dropped_duplicates")
    fix = "--drop-duplicates leaves out rows that repeat another" if repeats else "read the view with seen items kept"
    return (
        f"{seen:,} of {labels:,} test labels are items that their user had taken before; with seen items removed no "
        f"method can find them: {fix}"
    )


def _of_new_items(split: Split) -> str | None:
    """A note where at least half of the labels are items that training has no row of."""
    new, labels = split.test.labels_outside(split.train.histories), len(split.test.labels.items)
    if 2 * new < labels:
        return None
    return (
        f"{new:,} of {labels:,} test labels are items without a training row, and hardly any method finds those; "
        "`beamwood describe` counts them in every split, and `beamwood refit` learns from them before you serve"
    )
