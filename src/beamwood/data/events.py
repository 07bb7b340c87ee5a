"""Event kinds: which rows of a log count, with what weight, and which are negative feedback."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import polars as pl

from beamwood.arguments import is_number
from beamwood.data.columns import USUAL_EVENTS, squashed
from beamwood.data.files.source import Source, reading
from beamwood.errors import InputError, nearest

__all__ = [
    "WEIGHT",
    "EventKinds",
    "counts_of",
    "event_note",
    "last_was_negative",
    "listing",
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
# Columns with these names hold event kinds only if one of USUAL_EVENTS is among the values.
_PERHAPS = {"type", "kind"}
_USUALLY_NEGATIVE = {"skip", "dislike", "unlike", "hide", "dismiss", "block", "report", "return", "refund", "cancel"}
# A column with more distinct values does not hold event kinds.
_MOST_KINDS = 30
_SHOWN = 6


@dataclass(frozen=True, slots=True)
class EventKinds:
    """`counted`: the weight of each kind that counts, None where all count equally; `negative`: negative feedback."""

    column: str | None = None
    counted: Mapping[str, float] | None = None
    negative: tuple[str, ...] = ()

    @classmethod
    def of(cls, column: str | None, events: Any, negative: Any) -> Self:
        """The kinds of the given arguments. Errors: no kind; an invalid weight; a kind that counts and is negative."""
        counted = events
        if events is not None and not isinstance(events, Mapping):
            counted = dict.fromkeys(_listed("events", events), 1.0)
        if counted is not None and not counted:
            raise InputError("--events names no kind; write those that count, such as buy,view=0.3")
        for kind, weight in (counted or {}).items():
            if not (is_number(weight) and 0 < weight < math.inf):
                raise InputError(f"--events {kind}={weight!r}: a weight is a number above 0, such as {kind}=0.3")
        unwanted = tuple(_listed("negative_events", negative))
        both = sorted(set(unwanted) & set(counted or {}))
        if both:
            raise InputError(f"'{both[0]}' is among --events and among --negative-events; name it once")
        return cls(column, counted, unwanted)

    @property
    def are_given(self) -> bool:
        """Whether any kind was named."""
        return self.counted is not None or bool(self.negative)

    @property
    def weighed(self) -> bool:
        """Whether kinds have different weights."""
        return len(set((self.counted or {}).values())) > 1

    def as_dict(self) -> dict[str, Any]:
        """The form saved in an artefact: the weight of each named kind that counts, and the negative kinds."""
        counted = {kind: float(weight) for kind, weight in (self.counted or {}).items() if kind}
        return {"counted": counted, "negative": list(self.negative)}


def read_events(table: Source, kinds: EventKinds) -> tuple[Source, pl.Expr, EventKinds, str]:
    """The rows whose kind counts or is negative, the weight of each (0: negative), the resolved kinds, and a note.

    Errors: no column of kinds; a kind that no row has; no kind that counts.
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
    """A note about a column that seems to hold event kinds but was not named; None where there is none."""
    for name in table.column_names:
        counts = None if name in taken else _seeming_kinds(table, name)
        if counts is not None:
            return (
                f"'{name}' has kinds of events ({listing(counts)}), which count alike; choose some and weigh them "
                f"with --event-column '{name}' {_such(counts)}"
            )
    return None


def _such(counts: Mapping[str, int]) -> str:
    """Options that weigh the most frequent kind less than the next, and make kinds that usually mean no negative."""
    kinds = [each for each in counts if each] or [""]
    positive = [each for each in kinds if squashed(each) not in _USUALLY_NEGATIVE]
    negative = [each for each in kinds if each not in positive] if positive else []
    first, *others = positive or kinds
    events = f"--events {_written({others[0]: 1, first: 0.3} if others else {first: 1 if negative else 0.3})}"
    if negative:
        return f"{events} --negative-events {_written(dict.fromkeys(negative, 1))}"
    return f"{events}, and --negative-events for those that mean no"


def _written(kinds: Mapping[str, float]) -> str:
    """The kinds with their weights for a shell, as `cli.listed.parse_events` reads them."""
    if any(each != each.strip() or set(each) & set(",=") for each in kinds):
        weighed = any(weight != 1 for weight in kinds.values())
        return shlex.quote(json.dumps(kinds if weighed else list(kinds), ensure_ascii=False))
    return shlex.quote(",".join(each if weight == 1 else f"{each}={weight:g}" for each, weight in kinds.items()))


def _seeming_kinds(table: Source, name: str) -> Mapping[str, int] | None:
    """The counts of a column's event kinds, None where it does not seem to hold any."""
    if squashed(name) not in _NAMES | _PERHAPS or not table.holds_text(name):
        return None
    (kinds,) = table.measured(table.column(name).n_unique())
    if not 1 < kinds <= _MOST_KINDS:
        return None
    counts = counts_of(table, name)
    usual = squashed(name) not in _PERHAPS or bool(USUAL_EVENTS & {squashed(kind) for kind in counts})
    return counts if usual else None


def last_was_negative(rows: pl.DataFrame) -> pl.DataFrame:
    """The user-item pairs whose last row, by time and then by position, is negative (weight 0)."""
    pairs = rows.filter(pl.col(WEIGHT) == 0).select("user", "item").unique()
    order = ["time", "place"] if "time" in rows.columns else ["place"]
    asked = rows.with_row_index("place").join(pairs, on=["user", "item"], how="semi")
    last = asked.sort(order).group_by("user", "item", maintain_order=True).agg(pl.col(WEIGHT).last())
    return last.filter(pl.col(WEIGHT) == 0).select("user", "item").sort("user", "item")


def _listed(name: str, kinds: Any) -> list[str]:
    if isinstance(kinds, str) or not all(isinstance(kind, str) for kind in kinds):
        raise InputError(f"{name}={kinds!r} is not a list of kinds; write ['buy'], or {{'buy': 1, 'view': 0.3}}")
    return list(kinds)


def _column(table: Source, kinds: EventKinds) -> str:
    there = table.column_names
    if kinds.column is not None:
        if kinds.column not in there:
            raise InputError(f"{table.name} has no column '{kinds.column}' of events{nearest(kinds.column, there)}")
        return kinds.column
    found = [name for name in there if squashed(name) in _NAMES]
    if len(found) == 1:
        return found[0]
    what = f"several columns of events: {', '.join(found)}" if found else "no column of events by a usual name"
    seems = next((name for name in there if _seeming_kinds(table, name) is not None), None)
    such = "" if seems is None else f", such as --event-column '{seems}'"
    raise InputError(f"{table.name} has {what}; it has: {', '.join(there)}. Name it with --event-column{such}")


def _kind(table: Source, name: str) -> pl.Expr:
    return table.column(name).cast(pl.String).fill_null("")


def counts_of(table: Source, name: str) -> dict[str, int]:
    """The number of rows of each value of a column, most frequent first; null counts as ''."""
    with reading(table.name):
        counted = (
            table.frame.select(_kind(table, name).alias("kind")).group_by("kind").len().collect(engine="streaming")
        )
    ordered = counted.sort(["len", "kind"], descending=[True, False])
    return dict(zip(ordered["kind"].to_list(), ordered["len"].to_list(), strict=True))


def listing(counts: Mapping[str, int]) -> str:
    """The most frequent ones, as "view 3,000, buy 20", and the number of others."""
    shown = ", ".join(f"{kind or 'none'} {count:,}" for kind, count in list(counts.items())[:_SHOWN])
    return shown + (f" and {len(counts) - _SHOWN} more" if len(counts) > _SHOWN else "")
