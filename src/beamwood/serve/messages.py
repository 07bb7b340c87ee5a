"""Bodies and answers of the search endpoints; an unknown field is refused."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from beamwood.serve.problems import NOT_BLANK, Failure

__all__ = [
    "Answer",
    "Batch",
    "BatchAnswer",
    "Filter",
    "Id",
    "Item",
    "ListAnswer",
    "Name",
    "Promote",
    "Recommend",
    "Row",
    "Score",
    "Similar",
    "Took",
]

Id = int | str
Name = Annotated[str, Meta(pattern=NOT_BLANK, max_length=64)]
Ids = list[Id]
By = Literal["model", "vectors", "tree"]
Explain = Literal["none", "scores", "full"]
Count = Annotated[int, Meta(ge=1)]
Deadline = Annotated[int, Meta(ge=1, le=600_000)]
Part = Annotated[float, Meta(ge=0, le=1)]


class Body(Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True, gc=False):
    """A request body."""


class Filter(Body):
    """Conditions on the recommended items; an item must meet all of them."""

    category: Annotated[list[str] | None, Meta(description="Only items of at least one of these categories.")] = None
    all_of: Annotated[list[str] | None, Meta(description="Only items that have all of these categories.")] = None
    none_of: Annotated[list[str] | None, Meta(description="Only items that have none of these categories.")] = None
    items: Annotated[Ids | None, Meta(description="Only these items.")] = None
    where: Annotated[
        dict[str, Any] | None, Meta(description='Conditions on item columns, such as {"price": {"lte": 20}}.')
    ] = None


class Promote(Body):
    """A share of the positions for the best items of a filter, evenly spread."""

    filter: Filter
    share: Annotated[float, Meta(gt=0, le=1)]
    name: Name = "promoted"


class Recommend(Body):
    """A request for k items for exactly one of user, history and session."""

    user: Id | None = None
    history: Annotated[Ids | None, Meta(description="Item ids, oldest first.")] = None
    session: str | None = None
    events: Annotated[Ids | None, Meta(description="Item ids that follow the stored history, oldest first.")] = None
    k: Count = 20
    exclude_seen: bool = True
    exclude_rejected: Annotated[bool, Meta(description="Exclude items whose latest event of the user is negative.")] = (
        False
    )
    exclude: Annotated[Ids, Meta(description="Items to exclude.")] = field(default_factory=list)
    context: dict[str, Any] | None = None
    filter: Filter | None = None
    max_per_category: Annotated[
        int | dict[str, int] | None, Meta(description="Maximum number of items per category.")
    ] = None
    diversity: Part = 0.0
    promote: list[Promote] = field(default_factory=list)
    beam_width: Annotated[Count | None, Meta(description="Trees only: use a full beam of this width.")] = None
    effort: Annotated[
        Part | None, Meta(description="Trees only: search effort, from 0 (fastest) to 1 (full beam).")
    ] = None
    explain: Explain = "none"
    fields: Annotated[list[str], Meta(description="Columns of the item table (--items) to return.")] = field(
        default_factory=list
    )
    cursor: Annotated[str | None, Meta(description="Cursor of the previous answer; returns its next page.")] = None
    pages: Annotated[bool, Meta(description="Return a cursor for the next page.")] = False
    deadline_ms: Deadline | None = None
    dry_run: Annotated[bool, Meta(description="Validate the request without a search.")] = False
    on_unknown: Literal["ignore", "error"] = "ignore"


class Batch(Body):
    """A batch of requests, processed at lower priority than single requests."""

    requests: list[Recommend]


class Similar(Body):
    """A request for similar items: exactly one of item and items."""

    item: Id | None = None
    items: Ids | None = None
    k: Count = 20
    by: By = "model"
    filter: Filter | None = None
    fields: list[str] = field(default_factory=list)
    deadline_ms: Deadline | None = None


class Score(Body):
    """Items to rank for a user, a history or a session."""

    items: Ids
    user: Id | None = None
    history: Ids | None = None
    session: str | None = None
    events: Ids | None = None
    context: dict[str, Any] | None = None
    fields: list[str] = field(default_factory=list)
    deadline_ms: Deadline | None = None
    on_unknown: Literal["ignore", "error"] = "ignore"


class Item(Struct, omit_defaults=True, gc=False):
    """One item of an answer; `rank` counts from 1."""

    item: Any
    score: float
    rank: int
    source: Literal["model", "new_item", "popular", "promoted"]
    promotion: str | None = None
    fields: dict[str, Any] | None = None
    explain: dict[str, Any] | None = None


class Took(Struct, gc=False):
    """Milliseconds by stage; `search` includes `rank`, the stages after the first."""

    queue: float = 0.0
    store: float = 0.0
    search: float = 0.0
    rank: float = 0.0
    total: float = 0.0


class Answer(Struct, omit_defaults=True, kw_only=True):
    """Recommended items with their source and timings; `explain` describes the whole answer."""

    request_id: str
    model: str
    snapshot: int
    source: Literal["model", "popular", "mixed"]
    history_used: int
    history_seq: int | None = None
    stale_history: bool = False
    unknown_user: bool = False
    arm: str | None = None
    beam_width: int | None = None
    degraded: bool
    allowed: Annotated[int | None, Meta(description="Number of items that the filter allows.")] = None
    took_ms: Took
    items: list[Item]
    unknown_items: Annotated[list[Any], Meta(description="Ids that are not in the catalogue.")]
    cursor: str | None = None
    explain: dict[str, Any] | None = None


class Row(Struct, omit_defaults=True):
    """One row of a batch: an answer or an error."""

    ok: Answer | None = None
    error: Failure | None = None


class BatchAnswer(Struct):
    """The rows in the order of the requests."""

    request_id: str
    rows: list[Row]


class ListAnswer(Struct, omit_defaults=True, kw_only=True):
    """Items best first: those like given ones, or given ones in order."""

    request_id: str
    model: str
    snapshot: int
    arm: str | None = None
    stale_history: bool = False
    items: list[Item]
    unknown_items: list[Any]
