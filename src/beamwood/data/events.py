"""Kinds of events: which of a log's rows count, with what weight, and which say that a user does not want an item."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, Self

import polars as pl

from beamwood.data.columns import USUAL_EVENTS, squashed
from beamwood.data.source import Source, reading
from beamwood.errors import InputError, nearest

__all__ = [
    "WEIGHT",
    "EventKinds",
    "counts_of",
    "event_note",
    "last_was_negative",
    "listing",
    "parse_events",
    "read_events",
]

WEIGHT = "event_weight"
_NAMES = {
    squashed(name)
    for name in (
        *("event", "event_type", "event_name", "event_kind", "action", "action_type", "behavior", "behaviour"),
        *("behavior_type", "behaviour_type", "interaction", "interaction_type", "activity", "feedback_type"),
    )
}
# What may be kinds of anything, and of events where one of these is among them.
_PERHAPS = {"type", "kind"}
# A column of more kinds than these is none of kinds.
_MOST_KINDS = 30
_SHOWN = 6


@dataclass(frozen=True, slots=True)
class EventKinds:
    """`counted`: the weight of each kind that counts, None where all do alike; `negative`: kinds that mean no."""

    column: str | None = None
    counted: Mapping[str, float] | None = None
    negative: tuple[str, ...] = field(default=())

    @classmethod
    def of(cls, column: str | None, events: Any, negative: Any) -> Self:
        """What was said, checked. Errors: no kind; a weight that is none; a kind that counts and is negative."""
        counted = events
        if events is not None and not isinstance(events, Mapping):
            counted = dict.fromkeys(_listed("events", events), 1.0)
        if counted is not None and not counted:
            raise InputError("--events names no kind; write those that count, such as buy,view=0.3")
        for kind, weight in (counted or {}).items():
            if isinstance(weight, bool) or not isinstance(weight, Real) or not 0 < float(weight) < math.inf:
                raise InputError(f"--events {kind}={weight!r}: a weight is a number above 0, such as {kind}=0.3")
        unwanted = tuple(_listed("negative_events", negative))
        both = sorted(set(unwanted) & set(counted or {}))
        if both:
            raise InputError(f"'{both[0]}' is among --events and among --negative-events; name it once")
        return cls(column, counted, unwanted)

    @property
    def are_said(self) -> bool:
        """Whether any kind was named."""
        return self.counted is not None or bool(self.negative)

    @property
    def weighed(self) -> bool:
        """Whether some kinds weigh otherwise than others."""
        return len(set((self.counted or {}).values())) > 1

    def as_dict(self) -> dict[str, Any]:
        """What an artefact keeps of them: the weight of each kind that counts, and the kinds that are negative.

        Rows without a kind have none to name.
        """
        counted = {kind: float(weight) for kind, weight in (self.counted or {}).items() if kind}
        return {"counted": counted, "negative": list(self.negative)}


def parse_events(text: str | None) -> dict[str, float] | None:
    """ "buy,view=0.3" as weights by kind, 1 where none is said; None of None."""
    if text is None:
        return None
    found: dict[str, float] = {}
    for part in (part.strip() for part in text.split(",")):
        before, equals, weight = part.rpartition("=")
        kind = (before if equals else part).strip()
        if not kind:
            raise InputError(f"--events {text!r} lacks a kind; write those that count, such as buy,view=0.3")
        if kind in found:
            raise InputError(f"--events {text!r} names '{kind}' twice")
        try:
            found[kind] = float(weight) if equals else 1.0
        except ValueError:
            raise InputError(f"--events {part!r}: {weight!r} is no number; write {kind}=0.3") from None
    return found


def read_events(table: Source, kinds: EventKinds) -> tuple[Source, pl.Expr, EventKinds, str]:
    """The rows whose kind counts or is negative, the weight of each (0 of a negative one), the kinds, each by its name,
    and what was done, in words.

    Errors: no column of kinds; a kind that no row has; none that counts.
    """
    name = _column(table, kinds)
    kind, counts = _kind(table, name), counts_of(table, name)
    counted = dict(kinds.counted or {each: 1.0 for each in counts if each not in kinds.negative})
    if not counted:
        raise InputError(f"{table.name}: every row has a negative kind as its '{name}'; leave out one that counts")
    for option, each in (*(("--events", k) for k in counted), *(("--negative-events", k) for k in kinds.negative)):
        if each not in counts:
            raise InputError(f"{table.name}: no row has {option} {each!r} as its '{name}'{nearest(each, counts)}")
    weights = {each: float(weight) for each, weight in (counted | dict.fromkeys(kinds.negative, 0)).items()}
    weight = kind.replace_strict(list(weights), list(weights.values()), default=None, return_dtype=pl.Float32)
    left = {each: count for each, count in counts.items() if each not in weights}
    told = (f"{each or 'none'} {counts[each]:,} count as {counted[each]:g}" for each in counted)
    said = f"'{name}': " + ", ".join(told)
    if kinds.negative:
        said += "; negative, in no history: " + ", ".join(f"{each} {counts[each]:,}" for each in kinds.negative)
    if left:
        said += f"; left out: {listing(left)}"
    rows = table.keeping(kind.is_in(list(weights))) if left else table
    return rows, weight.alias(WEIGHT), replace(kinds, column=name, counted=counted), said


def event_note(table: Source, taken: Sequence[str]) -> str | None:
    """A line on a column that seems to hold kinds of events and is not asked for; None where there is none."""
    for name in table.column_names:
        counts = None if name in taken else _seeming_kinds(table, name)
        if counts is not None:
            first, *others = [each for each in counts if each.strip() and not set(each) & set(",=")] or [""]
            such = ",".join([*others[:1], f"{first}=0.3"])
            return (
                f"'{name}' has kinds of events ({listing(counts)}), which count alike; choose some and weigh them "
                f"with --event-column '{name}' --events {such}, and --negative-events for those that mean no"
            )
    return None


def _seeming_kinds(table: Source, name: str) -> Mapping[str, int] | None:
    """How often a column has each kind of event, None where it seems to hold none."""
    if squashed(name) not in _NAMES | _PERHAPS or table.schema[name] not in (pl.String, pl.Categorical, pl.Enum):
        return None
    with reading(table.name):
        kinds = table.frame.select(table.column(name).n_unique()).collect(engine="streaming").item()
    if not 1 < kinds <= _MOST_KINDS:
        return None
    counts = counts_of(table, name)
    usual = squashed(name) not in _PERHAPS or bool(USUAL_EVENTS & {squashed(kind) for kind in counts})
    return counts if usual else None


def last_was_negative(rows: pl.DataFrame) -> pl.DataFrame:
    """The pairs of user and item whose last row, by time and then by place, is negative: its weight is 0."""
    pairs = rows.filter(pl.col(WEIGHT) == 0).select("user", "item").unique()
    order = ["time", "place"] if "time" in rows.columns else ["place"]
    asked = rows.with_row_index("place").join(pairs, on=["user", "item"], how="semi")
    last = asked.sort(order).group_by("user", "item", maintain_order=True).agg(pl.col(WEIGHT).last())
    return last.filter(pl.col(WEIGHT) == 0).select("user", "item").sort("user", "item")


def _listed(name: str, kinds: Any) -> list[str]:
    if isinstance(kinds, str) or not all(isinstance(kind, str) for kind in kinds):
        raise InputError(f"{name}={kinds!r} is no list of kinds; write ['buy'], or {{'buy': 1, 'view': 0.3}}")
    return list(kinds)


def _column(table: Source, kinds: EventKinds) -> str:
    there = table.column_names
    if kinds.column is not None:
        if kinds.column not in there:
            raise InputError(f"{table.name} has no column '{kinds.column}' of events{nearest(kinds.column, there)}")
        return kinds.column
    found = [name for name in there if squashed(name) in _NAMES]
    if len(found) != 1:
        what = f"several columns of events: {', '.join(found)}" if found else "no column of events by a usual name"
        raise InputError(f"{table.name} has {what}; it has: {', '.join(there)}. Name it with --event-column")
    return found[0]


def _kind(table: Source, name: str) -> pl.Expr:
    return table.column(name).cast(pl.String).fill_null("")


def counts_of(table: Source, name: str) -> dict[str, int]:
    """How many rows each word of a column has, most frequent first; rows without one are ''."""
    with reading(table.name):
        counted = (
            table.frame.select(_kind(table, name).alias("kind")).group_by("kind").len().collect(engine="streaming")
        )
    ordered = counted.sort(["len", "kind"], descending=[True, False])
    return dict(zip(ordered["kind"].to_list(), ordered["len"].to_list(), strict=True))


def listing(counts: Mapping[str, int]) -> str:
    """ "view 3,000, buy 20": the most frequent ones, and how many others there are."""
    shown = ", ".join(f"{kind or 'none'} {count:,}" for kind, count in list(counts.items())[:_SHOWN])
    return shown + (f" and {len(counts) - _SHOWN} more" if len(counts) > _SHOWN else "")
