"""A description of a log as lines of text."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping
from typing import Any

from beamwood.data.columns import with_article
from beamwood.data.dataset import Dataset
from beamwood.data.description.shape import lengths, popularity
from beamwood.words import counted

__all__ = ["description_lines", "lines_of_fit", "outline_lines"]

Document = Mapping[str, Any]


def description_lines(document: Document) -> list[str]:
    """The lines of a description by `describe_log`."""
    rows, left_out = document["rows"], document["left_out"]
    told = [*outline_lines(document)]
    told += [_of_ids(document, "user"), _of_ids(document, "item")]
    told += _of_times(document)
    told += _of_weights(document)
    told.append(_of_lengths(document["lengths"], document["users"]["number"]))
    told.append(_of_popularity(document["popularity"], document["items"]["number"]))
    told += _of_repeats(document)
    told += _of_table(document["item_table"], document["items"]["number"])
    told += [f"split {name}: {_of_split(split, document)}" for name, split in document["splits"].items()]
    told.append(f"fit takes {document['taken']:,} of {rows:,} rows and leaves {left_out:,} out")
    return told + [f"note: {note}" for note in document["notes"]]


def outline_lines(document: Document) -> Iterator[str]:
    """The lines about columns and missing cells."""
    columns = (f"{each['name']} ({_role(each)}{each['type']})" for each in document["columns"])
    yield f"{document['source']}: {counted(document['rows'], 'row')}; columns {', '.join(columns)}"
    lacking = [
        f"{counts['empty']:,} without {with_article(role)}"
        + (f", {counts['words']:,} with a null word, such as nan" if counts["words"] else "")
        for role, counts in document["missing"].items()
        if counts["empty"] or counts["words"]
    ]
    yield f"missing: {'; '.join(lacking) or 'nothing in the columns of users, items, times and weights'}"


def lines_of_fit(dataset: Dataset) -> list[str]:
    """The three lines that a fit prints about its log: histories, items, times."""
    counts = dataset.item_counts
    told = [
        _of_lengths(lengths(dataset.histories.lengths), len(dataset.users)),
        _of_popularity(popularity(counts[counts > 0]), int((counts > 0).sum())),
    ]
    if dataset.times is None:
        return [*told, _no_times(drawn=bool(dataset.report["order"]))]
    first, last = dataset.written_times(int(dataset.times.min()), int(dataset.times.max()))
    return [*told, f"times: from {first} to {last}{_ahead(last)}"]


def _role(column: Document) -> str:
    return f"the {column['role']}, " if column["role"] else ""


def _of_ids(document: Document, role: str) -> str:
    ids = document[f"{role}s"]
    looks = "; some differ only by looks, see below" if ids["differ_only_by_looks"] else ""
    return (
        f"{role}s: {ids['number']:,} in '{ids['column']}', written as {ids['written_as']}, read as {ids['read_as']}, "
        f"from {ids['examples'][0]!r} to {ids['examples'][-1]!r}{looks}"
    )


def _of_times(document: Document) -> Iterator[str]:
    times = document["times"]
    if times is None:
        yield _no_times(drawn=document["drawn"])
        return
    utc = " UTC" if "days" in times else ""
    span = f"from {times['first']} to {times['last']}{utc}{_ahead(times['last'])}"
    yield f"times: {times['kind']}; unit {times['unit']}; zone {times['zone']}; {span}"
    if "days" in times:
        gap = times["longest_gap"]
        longest = f"; the longest gap is {gap['days']:,} days after {gap['from']}" if gap else ""
        yield f"days: {times['days']:,}, of which {times['days_without_rows']:,} have no rows{longest}"
    yield f"ties: {_share(document, 'ties')} share their time with another row of their user"


def _ahead(last: str) -> str:
    """A warning behind the last time of a log where it is a date beyond tomorrow."""
    tomorrow = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
    if not re.match(r"\d{4}-\d\d-\d\d ", last) or last[:19] <= tomorrow.strftime("%Y-%m-%d %H:%M:%S"):
        return ""
    return ", which is in the future: check the unit, and leave out rows with a wrong time"


def _no_times(*, drawn: bool) -> str:
    order = ", and the order of rows tells nothing; see the notes" if drawn else "; the order of rows counts"
    return f"times: none{order}"


def _of_weights(document: Document) -> Iterator[str]:
    weights = document["weights"]
    if weights is None:
        return
    if weights["least"] is None:
        yield f"weights: '{weights['column']}' holds no numbers"
        return
    few = ", ".join(f"{each['value']:g} in {each['rows']:,}" for each in weights["values"])
    span = f"from {weights['least']:g} to {weights['most']:g}, mean {weights['mean']:.4g}"
    none = f"; {counted(weights['no_numbers'], 'cell holds', 'cells hold')} no number" if weights["no_numbers"] else ""
    yield f"weights: {span}{f'; {few} rows' if few else ''}{none}; {document['weight_words']}"


def _of_lengths(told: Document, users: int) -> str:
    quantiles = told["quantiles"]
    return (
        f"histories: {counted(users, 'user')}, the median has {counted(quantiles['0.5'], 'row')}, 90 % have at most "
        f"{quantiles['0.9']:,}, the longest {quantiles['1']:,} ({_percent(told['share_of_longest'])} of all rows); "
        f"{told['fewer_than_3']:,} have fewer than 3"
    )


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"


def _of_popularity(told: Document, items: int) -> str:
    top = told["top"]
    return (
        f"items: {counted(items, 'was', 'were')} taken, {told['once']:,} of them once; the most taken 1 % have "
        f"{_percent(top['0.01'])} of the rows, 10 % have {_percent(top['0.1'])}"
    )


def _of_repeats(document: Document) -> Iterator[str]:
    yield (
        f"repeats: {_share(document, 'duplicates')} repeat another one exactly; {_share(document, 'taken_again')} take "
        "an item that their user also has in another row"
    )


def _share(document: Document, what: str) -> str:
    basis = document["measured_on"]
    part = f" (of one user in {basis['one_user_in']})" if basis["one_user_in"] > 1 else ""
    return f"{document[what]:,} of {basis['rows']:,} rows{part}"


def _of_table(table: Document | None, items: int) -> Iterator[str]:
    if table is None:
        return
    missing = table["items_not_in_table"]
    yield (
        f"item table: {items - missing:,} of {items:,} items of the log are in it; {table['items_without_rows']:,} of "
        f"its items have no rows; {table['items_of_another_type']:,} have ids of another type"
    )
    filled = ", ".join(f"{each['name']} ({each['type']}, {100 * each['filled']:.3g} %)" for each in table["columns"])
    yield f"its columns, and how many items have a value: {filled or 'none'}"
    if "categories" in table:
        most = ", ".join(f"{each['name']!r} {each['count']:,}" for each in table["categories"]["most"])
        yield (
            f"categories: {table['categories']['number']:,}, the largest {most or 'none'}; "
            f"{counted(table['categories']['items_without'], 'item')} without"
        )


def _of_split(split: Document, document: Document) -> str:
    if "error" in split:
        return f"cannot be made: {split['error']}"
    one_in = document["measured_on"]["one_user_in"]
    part = f" (of one user in {one_in})" if one_in > 1 else ""
    labels, seen, new = (split[name] for name in ("test_labels", "labels_seen_before", "labels_without_training_rows"))
    return (
        f"{counted(split['train_rows'], 'row trains', 'rows train')}, "
        f"{counted(split['valid_users'], 'user validates', 'users validate')}, "
        f"{counted(split['test_users'], 'tests', 'test')} with {counted(labels, 'label')}{part}, "
        f"of which they had taken {seen:,} before"
        + ("" if new is None else f" and {new:,} are items without a training row")
        + ("; answers without seen items find none of them" if seen == labels else "")
    )
