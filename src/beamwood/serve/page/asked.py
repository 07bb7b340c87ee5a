"""The form of the page, parsed from the address: a request of the API, and a search for items."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from beamwood.data.vocabularies.vocabulary import Vocabulary
from beamwood.errors import InputError
from beamwood.retrieval.columns.where_text import parse_where
from beamwood.serve.answer.ids import typed_id
from beamwood.serve.answer.snapshot import Snapshot
from beamwood.serve.messages import Filter, Recommend
from beamwood.serve.problems import Problem, whole_number

__all__ = ["FIELDS", "FormFields"]

FIELDS = {
    "user": "A user of the log, or of the store.",
    "history": 'Item ids, oldest first, with commas between; ids with commas as JSON: ["a,b", "c"].',
    "find": "Words of a title, or the beginning of an id.",
    "k": "How many items.",
    "rejected": "1: without what the user rejected.",
    "own": "1: the effort is that of the slider, not the fit's choice.",
    "effort": "Of a tree, 0 to 1.",
    "category": "Only items of this category.",
    "where": "A condition, such as price<=20.",
}


@dataclass(frozen=True, slots=True)
class FormFields:
    """The fields as text, as the form shows them."""

    user: str = ""
    history: str = ""
    find: str = ""
    k: str = "20"
    rejected: str = ""
    own: str = ""
    effort: str = "0.5"
    category: str = ""
    where: str = ""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Self:
        """The fields of an address's parameters."""
        return cls(**{name: value.strip() for name, value in query.items() if value.strip()})

    def ids(self, vocabulary: Vocabulary) -> list[Any]:
        """The history's ids."""
        return [typed_id(text, vocabulary) for text in self._texts()]

    def _texts(self) -> list[str]:
        try:
            listed = json.loads(self.history)
        except (ValueError, RecursionError):
            listed = None
        if isinstance(listed, list) and all(isinstance(each, str | int) for each in listed):
            return [str(each) for each in listed]
        return [text.strip() for text in self.history.split(",") if text.strip()]

    def adding(self, item: Any) -> str:
        """The text of the history with one more item."""
        texts = [*self._texts(), str(item)]
        plain = ",".join(texts)
        # It must parse to the same history.
        return plain if replace(self, history=plain)._texts() == texts else json.dumps(texts, ensure_ascii=False)

    def body(self, snapshot: Snapshot) -> Recommend | None:
        """The request, None for an empty form. Errors: `Problem` on an invalid field."""
        names = snapshot.names
        history = self.ids(names.items)
        if not self.user and not history:
            return None
        title = snapshot.fields.title
        return Recommend(
            user=typed_id(self.user, names.items if names.users is None else names.users) if self.user else None,
            history=None if self.user else history,
            events=history if self.user and history else None,
            k=whole_number("k", self.k, 1, 200),
            exclude_rejected=bool(self.user and self.rejected),
            effort=_share("effort", self.effort) if self.own and snapshot.tree is not None else None,
            filter=self._filter(snapshot),
            fields=[] if title is None else [title],
            explain="full",
        )

    def _filter(self, snapshot: Snapshot) -> Filter | None:
        if not self.category and not self.where:
            return None
        try:
            where = parse_where(self.where, snapshot.names.filters.columns) if self.where else None
        except InputError as error:
            raise Problem("invalid_request", str(error), field="where") from None
        return Filter(category=[self.category] if self.category else None, where=where)


def _share(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise Problem("invalid_request", f"{name}={text!r} is outside 0..1", field=name)
    return value
