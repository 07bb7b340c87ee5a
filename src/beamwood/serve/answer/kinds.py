"""Which events of a store count, as in the fit: kinds that count, negative kinds, and others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from beamwood.errors import ArtefactError
from beamwood.serve.store.event import UNTYPED, Event

__all__ = ["Kinds"]


@dataclass(frozen=True, slots=True)
class Kinds:
    """`counted`: the types that form a history, None: all; `negative`: negative feedback.

    An event without a type counts. Events of other types are stored, but enter no history.
    """

    counted: frozenset[str] | None = None
    negative: frozenset[str] = frozenset()

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> Self:
        """The kinds of a folder's manifest; all types count where the fit had none."""
        data = manifest.get("data")
        said = data.get("events") if isinstance(data, Mapping) else None
        if said is None:
            return cls()
        try:
            return cls(frozenset({*said["counted"], UNTYPED}), frozenset(said["negative"]))
        except (KeyError, TypeError) as error:
            raise ArtefactError(f"manifest.json: data.events cannot be read ({error}); fit and save it again") from None

    @property
    def judged(self) -> frozenset[str] | None:
        """The types that count or are negative."""
        return None if self.counted is None else self.counted | self.negative

    def counting(self, events: Iterable[Event]) -> list[Event]:
        """The events that count."""
        return [each for each in events if self.counted is None or each.type in self.counted]

    def others(self, events: Iterable[Event]) -> list[str]:
        """The types of events that neither count nor are negative, without repeats."""
        judged = self.judged
        return [] if judged is None else list(dict.fromkeys(each.type for each in events if each.type not in judged))
