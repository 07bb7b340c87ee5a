"""A log's own split: the column that marks each row as a user's history or as a future row to predict from it."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from beamwood.data.cells.ids import refuse
from beamwood.data.columns import squashed
from beamwood.data.events import counts_of, listing
from beamwood.data.files.source import Source, reading

__all__ = ["boundary_expression", "boundary_note"]

_HISTORY, _FUTURE = ["history", "train", "true", "1"], ["future", "test", "false", "0"]
_NAMES = {"boundary", "dataset", "fold", "part", "partition", "phase", "set", "split", "subset", "usage"}
# Words that identify such a column where none was named: truth values and numbers are ambiguous.
_PAST = {"history", "train", "training"}
_LATER = {"dev", "future", "test", "testing", "val", "valid", "validation"}
_MOST_WORDS = 8


def boundary_expression(table: Source, name: str) -> pl.Expr:
    """The boolean expression `history` of each row. Errors: a cell that says neither history nor future."""
    value = _words(table, name)
    history = value.is_in(_HISTORY)
    bad = ~(history | value.is_in(_FUTURE)).fill_null(False)
    refuse(
        table,
        name,
        bad,
        "values that say neither history (train, true, 1) nor future (test, false, 0)",
        "mend them or name another",
    )
    return history.alias("history")


def boundary_note(table: Source, user: str, taken: Sequence[str]) -> str | None:
    """A note about a column that looks like the log's own split but was not named; None where there is none."""
    for name in table.column_names:
        if not table.holds_text(name) or name in taken or squashed(name) not in _NAMES:
            continue
        with reading(table.name):
            words = table.frame.select(_words(table, name).unique().head(_MOST_WORDS + 1)).collect(engine="streaming")
        said = set(words.to_series())
        if len(said) > _MOST_WORDS or not said & _PAST or not said & _LATER:
            continue
        found = (
            f"'{name}' seems to be the log's own split ({listing(counts_of(table, name))}), and all rows count alike"
        )
        if not said <= {*_HISTORY, *_FUTURE}:
            return f"{found}; --split boundary needs a column with history (or train) and future (or test) alone"
        if _has_both(table, name, user):
            return f"{found}; --split boundary --boundary-column '{name}' uses it"
        return f"{found}; no user has rows of both, so remove the rows that should not be trained on"
    return None


def _words(table: Source, name: str) -> pl.Expr:
    # pandas converts integers to floats where one is missing.
    return table.column(name).cast(pl.String).str.to_lowercase().str.replace(r"^([01])\.0+$", "${1}")


def _has_both(table: Source, name: str, user: str) -> bool:
    """Whether some user has both history and future rows."""
    kinds = table.frame.select(table.column(user).alias("user"), _words(table, name).is_in(_HISTORY).alias("history"))
    with reading(table.name):
        sides = kinds.group_by("user").agg(pl.col("history").n_unique())
        return bool(sides.select((pl.col("history") > 1).any()).collect(engine="streaming").item())
