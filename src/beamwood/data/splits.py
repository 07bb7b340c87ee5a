"""The rules by which users' histories are split into training, validation and test; each states what may leak."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from beamwood.arguments import is_number, naming_arguments
from beamwood.data.dataset import Dataset
from beamwood.data.queries import Queries
from beamwood.data.split import Split
from beamwood.errors import InputError
from beamwood.ragged import indptr_of, places_in_rows, ranges
from beamwood.types import ItemLists
from beamwood.words import counted

__all__ = ["SPLITS", "by_boundary", "by_session", "by_time", "disjoint_users", "leave_one_out"]


class _EmptySplitError(InputError):
    """A split leaves no validation or test queries; `_with_split_advice` adds which splits would leave some."""


def _with_split_advice(split: Callable[..., Split]) -> Callable[..., Split]:
    """A decorator that adds to an `_EmptySplitError` which splits work on the same log, if any."""

    @functools.wraps(split)
    def tried(dataset: Dataset, **options: Any) -> Split:
        try:
            return split(dataset, **options)
        except _EmptySplitError as error:
            fitting = [name for name, other in SPLITS.items() if _leaves_something(inspect.unwrap(other), dataset)]
            none = "no split does, as users have too few interactions: give a log with longer histories"
            advice = f"choose --split {' or '.join(fitting)}" if fitting else none
            raise InputError(f"{error}; {advice}") from None

    return tried


def _leaves_something(split: Callable[..., Split], dataset: Dataset) -> bool:
    try:
        split(dataset)
    except InputError:
        return False
    return True


@naming_arguments
@_with_split_advice
def disjoint_users(dataset: Dataset, *, seed: int = 2026, history_length: int = 69) -> Split:
    """80 % of users train, 10 % validate, 10 % test; from the first half of their events the second is predicted.

    `p = default_rng(seed).permutation(sorted user ids)`, cut at `int(.8 n)` and `int(.9 n)`. A query's history is the
    last `history_length` items of the first half. That half is `n // 2` events, or the rows that the boundary column
    marks as history. The labels are the set of the rest, and seen items the whole first half. Source: DTR, section 6.1.
    """
    _check(dataset, seed)
    _check_whole("history_length", history_length, 1)
    num_users = len(dataset.users)
    order = np.random.default_rng(seed).permutation(num_users)
    first, second = int(0.8 * num_users), int(0.9 * num_users)
    if first == 0 or second in (first, num_users):
        raise _EmptySplitError(
            f"{num_users} users are too few for disjoint training, validation and test users, at least 10"
        )
    parts = [np.sort(users) for users in np.split(order, [first, second])]
    options = {"seed": seed, "history_length": history_length}
    return _of_users(dataset, parts, "users", f"disjoint users (80/10/10, seed {seed})", options)


def _of_users(
    dataset: Dataset, parts: Sequence[NDArray[np.int64]], name: str, rule: str, options: dict[str, Any]
) -> Split:
    """The split whose training, validation and test users are `parts`; the query is the first half of the history."""
    length, middle = options["history_length"], _middles(dataset)
    valid, test = (_halves(dataset, users, middle, length) for users in parts[1:])
    if not len(valid) or not len(test):
        raise _EmptySplitError(
            f"the split leaves {counted(len(valid), 'validation user')} and {counted(len(test), 'test user')} with "
            "both a history and labels"
        )
    report = {
        "train_users": len(parts[0]),
        "valid_queries": len(valid),
        "test_queries": len(test),
        "users_without_both_halves": len(parts[1]) + len(parts[2]) - len(valid) - len(test),
    }
    rule = (
        f"{rule}: no event of a validation or test user is trained on; a query is the last {length} items of the "
        f"user's {'history part' if dataset.in_history is not None else 'first half'}, the labels are the set of the "
        "rest"
    )
    return Split(dataset, _only(dataset, parts[0]), valid, test, name, rule, options, report)


def _halves(dataset: Dataset, users: NDArray[np.int64], middle: NDArray[np.int64], history_length: int) -> Queries:
    """The queries of those users who have events on both sides of the given middle of their histories."""
    histories = dataset.histories
    start, stop, end = histories.indptr[users], middle[users], histories.indptr[users + 1]
    kept = (stop > start) & (end > stop)
    users, start, stop, end = users[kept], start[kept], stop[kept], end[kept]
    return Queries(
        users=users,
        histories=histories.slices(np.maximum(start, stop - history_length), stop),
        labels=histories.slices(stop, end).distinct(),
        seen=histories.slices(start, stop),
        context=_context(dataset, stop),
    )


@naming_arguments
@_with_split_advice
def leave_one_out(dataset: Dataset, *, seed: int = 2026) -> Split:
    """The last item of each user tests, the one before validates, the rest trains; users with fewer than 3 only train.

    `seed` is accepted for a common signature; nothing is drawn.
    """
    _check(dataset, seed)
    histories = dataset.histories
    users = np.flatnonzero(histories.lengths >= 3)
    if len(users) == 0:
        raise _EmptySplitError(
            f"no user has the 3 items of leave-one-out, but at most {max(histories.lengths, default=0)}"
        )
    start, end = histories.indptr[users], histories.indptr[users + 1]

    def queries(held_out: NDArray[np.int64]) -> Queries:
        past = histories.slices(start, held_out)
        return Queries(users, past, histories.slices(held_out, held_out + 1), past, _context(dataset, held_out))

    stops = histories.indptr[1:].copy()
    stops[users] -= 2
    train = _between(dataset, histories.indptr[:-1], stops)
    report = {"queries": len(users), "users_with_fewer_than_3": len(dataset.users) - len(users)}
    rule = (
        "leave-one-out: a user's last item is the test label, the one before the validation label; neither is "
        "trained on, and the test history holds the validation item. Other users' later events are not hidden"
    )
    return Split(dataset, train, queries(end - 2), queries(end - 1), "leave-one-out", rule, {"seed": seed}, report)


@naming_arguments
@_with_split_advice
def by_time(dataset: Dataset, *, seed: int = 2026, valid_share: float = 0.1, test_share: float = 0.1) -> Split:
    """Two points in time cut the log: events before the first train, between them validate, after the second test.

    The given shares of events lie after each cut. A query is a user with events on both sides of its cut: the history
    is all before it, the labels the set after it. `seed` is accepted for a common signature.
    """
    _check(dataset, seed)
    times = _comparable_times(dataset, "time")
    cuts = _cuts(times, valid_share, test_share, "event")
    first, second = dataset.written_times(*cuts)
    before = [*(_count_before(dataset, cut) for cut in cuts), dataset.histories.lengths]
    histories, start = dataset.histories, dataset.histories.indptr[:-1]

    def queries(past: NDArray[np.int64], future: NDArray[np.int64], cut: str) -> Queries:
        users = np.flatnonzero((past > 0) & (future > past))
        if len(users) == 0:
            raise _EmptySplitError(f"no user has events on both sides of {cut}, a time cut of the split")
        history = histories.slices(start[users], start[users] + past[users])
        labels = histories.slices(start[users] + past[users], start[users] + future[users]).distinct()
        return Queries(users, history, labels, history, _context(dataset, start[users] + past[users]))

    train = _between(dataset, start, start + before[0])
    valid, test = queries(before[0], before[1], first), queries(before[1], before[2], second)
    rule = (
        f"by time: events before {first} train, from there to {second} validate, later ones test; "
        "no event at or after a query's cut is in its history or in training"
    )
    options = {"seed": seed, "valid_share": valid_share, "test_share": test_share}
    report = {"train_events": len(train.histories.items), "valid_queries": len(valid), "test_queries": len(test)}
    return Split(dataset, train, valid, test, "time", rule, options, report)


def _comparable_times(dataset: Dataset, name: str) -> NDArray[np.int64]:
    """The times of all events. Errors: no times, or times that do not compare between users."""
    if dataset.times is None:
        raise InputError(f"the log has no times, which --split {name} needs; name the column with --time-column")
    if np.array_equal(dataset.times, places_in_rows(dataset.histories.lengths)):
        raise _EmptySplitError(
            "the times only count 0, 1, 2, ... within each user and do not compare between users, which --split "
            f"{name} needs"
        )
    return dataset.times


def _cuts(times: NDArray[np.int64], valid_share: float, test_share: float, what: str) -> list[int]:
    """The two points in time from which the given shares of `times` validate and test."""
    if min(valid_share, test_share) <= 0 or valid_share + test_share >= 1:
        raise InputError(f"valid_share={valid_share}, test_share={test_share}: give shares above 0 that sum below 1")
    places = [int(len(times) * share) for share in (1 - valid_share - test_share, 1 - test_share)]
    if not places[0] < places[1] < len(times):
        raise InputError(
            f"valid_share={valid_share} or test_share={test_share} is below one {what} of {len(times):,}; raise it"
        )
    return [int(cut) for cut in np.sort(times)[places]]


@naming_arguments
@_with_split_advice
def by_session(
    dataset: Dataset, *, seed: int = 2026, history_length: int = 69, valid_share: float = 0.1, test_share: float = 0.1
) -> Split:
    """Whole users, as in a log whose users are sessions, by their first event: the latest test, those before validate.

    The given shares of users start from each cut on. Queries are those of `disjoint_users`. `seed` is accepted for a
    common signature. Source: Hidasi et al., "Session-based Recommendations with Recurrent Neural Networks" (ICLR 2016),
    section 4, where the sessions of the last day test.
    """
    _check(dataset, seed)
    _check_whole("history_length", history_length, 1)
    times = _comparable_times(dataset, "sessions")
    users = np.flatnonzero(dataset.histories.lengths)
    starts = times[dataset.histories.indptr[users]]
    cuts = _cuts(starts, valid_share, test_share, "user")
    first, second = dataset.written_times(*cuts)
    parts = [users[np.searchsorted(cuts, starts, "right") == part] for part in range(3)]
    if not len(parts[0]):
        raise _EmptySplitError(f"no user starts before the first cut, {first}, so that none is left for training")
    trained = np.zeros(len(dataset.users), bool)
    trained[parts[0]] = True
    after = np.count_nonzero((times >= cuts[1]) & trained[dataset.histories.rows])
    rule = (
        f"users by their first event (before {first} train, from there to {second} validate, later ones test; "
        f"{counted(int(after), 'training event is', 'training events are')} not before the second cut)"
    )
    options = {"seed": seed, "history_length": history_length, "valid_share": valid_share, "test_share": test_share}
    return _of_users(dataset, parts, "sessions", rule, options)


@naming_arguments
@_with_split_advice
def by_boundary(dataset: Dataset, *, seed: int = 2026, valid_share: float = 0.1) -> Split:
    """The log's own split: rows that the boundary column marks as history (or train) train, the others test.

    A share of each user's history rows, drawn with `seed`, validates (at least one where there are two or more). The
    test history is all of a user's history rows, the validation history those that train. Errors: no boundary column, a
    share outside 0..1, no user with both kinds of rows.
    """
    _check(dataset, seed)
    if dataset.in_history is None:
        raise InputError("--split boundary needs a column that says history or future; name it with --boundary-column")
    if not 0 < valid_share < 1:
        raise InputError(f"valid_share={valid_share} is outside 0..1; give a share between them, such as 0.1")
    histories, inside = dataset.histories, dataset.in_history
    rows, validates = histories.rows, _drawn_share(histories, inside, valid_share, seed)

    def queries(past: ItemLists, wanted: NDArray[np.bool_]) -> Queries:
        labels = histories.keeping(wanted).distinct()
        users = np.flatnonzero((labels.lengths > 0) & (past.lengths > 0))
        if len(users) == 0:
            marked = f"which marks {int(inside.sum()):,} of {counted(len(inside), 'row')} as history"
            raise _EmptySplitError(f"no user has both history and future rows by the boundary column, {marked}")
        entries = np.flatnonzero(wanted)
        first = entries[np.searchsorted(rows[entries], users)]
        return Queries(users, past.take(users), labels.take(users), past.take(users), _context(dataset, first))

    trains = inside & ~validates
    train = dataset.keeping(np.flatnonzero(trains), np.bincount(rows[trains], minlength=len(histories)))
    valid, test = queries(train.histories, validates), queries(histories.keeping(inside), ~inside)
    rule = (
        f"by the boundary column: its history rows train but for {valid_share:.0%} of each user's, drawn with seed "
        f"{seed}, which validate; the others test. Times play no part"
    )
    report = {"train_events": len(train.histories.items), "valid_queries": len(valid), "test_queries": len(test)}
    options = {"seed": seed, "valid_share": valid_share}
    return Split(dataset, train, valid, test, "boundary", rule, options, report)


def _drawn_share(histories: ItemLists, inside: NDArray[np.bool_], share: float, seed: int) -> NDArray[np.bool_]:
    """bool[entries]: a random share of each user's entries `inside`, at least one where there are two or more."""
    rows = histories.rows
    order = np.lexsort((np.random.default_rng(seed).random(len(rows)), rows))
    order = order[inside[order]]
    counts = np.bincount(rows[order], minlength=len(histories))
    wanted = np.where(counts >= 2, np.maximum(1, np.round(counts * share)), 0)
    chosen = np.zeros(len(rows), bool)
    chosen[order] = places_in_rows(counts) < wanted[rows[order]]
    return chosen


SPLITS: dict[str, Callable[..., Split]] = {
    "users": disjoint_users,
    "leave-one-out": leave_one_out,
    "time": by_time,
    "sessions": by_session,
    "boundary": by_boundary,
}


def _check(dataset: Any, seed: Any) -> None:
    if not isinstance(dataset, Dataset):
        raise InputError(f"dataset is a {type(dataset).__name__}; make one, as Dataset.from_log(read_log(source))")
    _check_whole("seed", seed, 0)


def _check_whole(name: str, value: Any, least: int) -> None:
    if not is_number(value, whole=True) or value < least:
        raise InputError(f"{name}={value!r} is not a whole number of at least {least}")


def _middles(dataset: Dataset) -> NDArray[np.int64]:
    """int64[users], the position among all events where each user's labels begin."""
    indptr = dataset.histories.indptr
    if dataset.in_history is None:
        return indptr[:-1] + dataset.histories.lengths // 2
    middle: NDArray[np.int64] = indptr[:-1] + np.diff(indptr_of(dataset.in_history)[indptr])
    misplaced = np.count_nonzero(dataset.in_history != (np.arange(indptr[-1]) < np.repeat(middle, np.diff(indptr))))
    if misplaced:
        raise InputError(
            f"the boundary column marks {counted(int(misplaced), 'event')} as history after a user's future, or the "
            "reverse; sort the log or correct the column"
        )
    return middle


def _only(dataset: Dataset, users: NDArray[np.int64]) -> Dataset:
    """The data set with the other users' histories empty."""
    stops = dataset.histories.indptr[:-1].copy()
    stops[users] = dataset.histories.indptr[users + 1]
    return _between(dataset, dataset.histories.indptr[:-1], stops)


def _between(dataset: Dataset, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> Dataset:
    """The data set with the entries `starts:stops` of each user."""
    lengths = stops - starts
    return dataset.keeping(ranges(starts, lengths), lengths)


def _context(dataset: Dataset, entries: NDArray[np.int64]) -> pl.DataFrame | None:
    return None if dataset.context is None else dataset.context[entries]


def _count_before(dataset: Dataset, cut: int) -> NDArray[np.int64]:
    assert dataset.times is not None
    return np.diff(indptr_of(dataset.times < cut)[dataset.histories.indptr])
