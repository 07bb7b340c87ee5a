"""Bodies and answers of the search endpoints; an unknown field is refused."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from beamwood.serve.problems import Failure

__all__ = [
    "Answer",
    "Batch",
    "BatchAnswer",
    "Filter",
    "Id",
    "Item",
    "ListAnswer",
    "Promote",
    "Recommend",
    "Row",
    "Score",
    "Similar",
    "Took",
]

Id = int | str
Ids = list[Id]
By = Literal["model", "vectors", "tree"]
Explain = Literal["none", "scores", "full"]
Count = Annotated[int, Meta(ge=1)]
Deadline = Annotated[int, Meta(ge=1, le=600_000)]
Part = Annotated[float, Meta(ge=0, le=1)]


class Body(Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True, gc=False):
    """What is posted."""


class Filter(Body):
    """Which items may be shown; what is given holds together."""

    category: Annotated[list[str] | None, Meta(description="Items of any of these categories.")] = None
    all_of: Annotated[list[str] | None, Meta(description="Items that have each of these categories.")] = None
    none_of: Annotated[list[str] | None, Meta(description="Items that have none of these categories.")] = None
    items: Annotated[Ids | None, Meta(description="These items alone.")] = None
    where: Annotated[
        dict[str, Any] | None, Meta(description='Conditions on columns of items: {"price": {"lte": 20}}.')
    ] = None


class Promote(Body):
    """Places for the best items of a filter, spread evenly."""

    filter: Filter
    share: Annotated[float, Meta(gt=0, le=1)]
    name: str = "promoted"


class Recommend(Body):
    """Who asks (exactly one of user, history and session), for how many items, of which."""

    user: Id | None = None
    history: Annotated[Ids | None, Meta(description="Item ids, oldest first.")] = None
    session: str | None = None
    events: Annotated[Ids | None, Meta(description="Item ids on top of what is kept, oldest first.")] = None
    k: Count = 20
    exclude_seen: bool = True
    exclude_rejected: Annotated[
        bool, Meta(description="Leave out items of which the user had a negative event last.")
    ] = False
    exclude: Annotated[Ids, Meta(description="Items that are not shown.")] = field(default_factory=list)
    context: dict[str, Any] | None = None
    filter: Filter | None = None
    max_per_category: Annotated[int | dict[str, int] | None, Meta(description="At most so many of a category.")] = None
    diversity: Part = 0.0
    promote: list[Promote] = field(default_factory=list)
    beam_width: Annotated[Count | None, Meta(description="Of a tree: the full beam, so wide.")] = None
    effort: Annotated[Part | None, Meta(description="Of a tree: 0 its cheapest way to search, 1 its full beam.")] = None
    explain: Explain = "none"
    fields: Annotated[list[str], Meta(description="Columns of --items that answers show.")] = field(
        default_factory=list
    )
    cursor: Annotated[str | None, Meta(description="That of the answer before: its next page.")] = None
    pages: Annotated[bool, Meta(description="The answer brings a cursor for the next page.")] = False
    deadline_ms: Deadline | None = None
    dry_run: Annotated[bool, Meta(description="All is checked, nothing is searched.")] = False
    on_unknown: Literal["ignore", "error"] = "ignore"


class Batch(Body):
    """Many requests, answered one by one behind those that wait for an answer."""

    requests: list[Recommend]


class Similar(Body):
    """Items like given ones: one of item and items."""

    item: Id | None = None
    items: Ids | None = None
    k: Count = 20
    by: By = "model"
    filter: Filter | None = None
    fields: list[str] = field(default_factory=list)
    deadline_ms: Deadline | None = None


class Score(Body):
    """A list of items to order for a user, a history or a session."""

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
    """Milliseconds by stage."""

    queue: float = 0.0
    store: float = 0.0
    search: float = 0.0
    rank: float = 0.0
    total: float = 0.0


class Answer(Struct, omit_defaults=True, kw_only=True):
    """What was found, and how; `explain`: what goes for the whole answer."""

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
    allowed: Annotated[int | None, Meta(description="How many items the filter allows.")] = None
    took_ms: Took
    items: list[Item]
    unknown_items: Annotated[list[Any], Meta(description="Ids that the catalogue lacks.")]
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


class ListAnswer(Struct, kw_only=True):
    """Items best first: those like given ones, or given ones in order."""

    request_id: str
    model: str
    snapshot: int
    items: list[Item]
    unknown_items: list[Any]
