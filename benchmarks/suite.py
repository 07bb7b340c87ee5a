"""The suite: the runs that `suite.toml` defines.

A topic is a table: rows (models) on logs, each with seeds. A run is one row on one log with one seed, and its name is
`topic/log/row/seed`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from beamwood.errors import InputError, first_problem, nearest

__all__ = ["Column", "LogEntry", "Row", "Run", "Suite", "Topic"]


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LogEntry(_Entry):
    """How a log is read and split: its folder, `reading` from `logs.READINGS`, and a split of `beamwood.splits`.

    `market` and `tastes`: settings of a planted market instead of a folder, generated with seed 0; the optimum of
    `tastes` is known. `test_users`: the number of test users, drawn once (None: all).
    """

    folder: str = ""
    market: dict[str, Any] | None = None
    tastes: dict[str, Any] | None = None
    title: str
    reading: str = "plain"
    split: str = "users"
    items: bool = False
    boundary: str | None = None
    test_users: int | None = None


class Row(_Entry):
    """A model, and the recipe that evaluates it.

    `start`: settings whose value is the folder of another row's fit, such as {"start.folder": "sasrec"}, or "main/dtr"
    of another topic; for the recipe `answers`, which fits nothing, folders by name. `same`: a row of another topic
    whose lines are also shown here, so nothing is run. `once`: only the first seed is run: True, because nothing is
    random; or on these logs, because a fit is long. `on`: other settings on single logs. `logs`: the topic's logs that
    the row is run on (None: all). `limit`: seconds until a run is stopped. The setting "null" means None, which TOML
    lacks.
    """

    title: str
    recipe: str = "whole"
    method: str | None = None
    preset: str | None = None
    settings: dict[str, Any] = {}
    start: dict[str, str] = {}
    same: str | None = None
    once: bool | list[str] = False
    on: dict[str, dict[str, Any]] = {}
    logs: list[str] | None = None
    limit: float = Field(default=1200, gt=0)

    @property
    def named_once(self) -> list[str]:
        """The logs that `once` names."""
        return [] if isinstance(self.once, bool) else self.once

    def seeds(self, log: str, seeds: Sequence[int]) -> Sequence[int]:
        """Those of a topic's seeds that the row is run with on a log."""
        return seeds[:1] if self.once is True or log in self.named_once else seeds


class Column(_Entry):
    """A column of a topic's table: a figure of the lines, such as "removed/f@20", its heading and its format.

    `interval`: show half the width of the 95 % interval; `test`: show the p-value of the paired test against the
    topic's `against`; `of`: show the figure relative to this row.
    """

    figure: str
    heading: str
    digits: int = 4
    interval: bool = False
    test: bool = False
    of: str | None = None


class Topic(_Entry):
    """A table: its rows on its logs. `keep`: figures, or patterns of them, whose values by user are stored.

    `seeds_of`: other seeds on single logs. `against`: the row that the others are tested against (None: the best one).
    `judged`: the figures with a verdict. `published`: by log and title, the figures of publications, shown below ours.
    """

    title: str
    logs: list[str]
    seeds: list[int] = [0]
    seeds_of: dict[str, list[int]] = {}
    ks: list[int] = [20]
    keep: list[str] = ["kept/f@20", "removed/f@20"]
    columns: list[Column] = []
    against: str | None = None
    judged: list[str] = []
    published: dict[str, dict[str, dict[str, float]]] = {}
    rows: dict[str, Row]


@dataclass(frozen=True, slots=True)
class Run:
    """One row on one log with one seed."""

    topic: str
    log: str
    row: str
    seed: int

    @property
    def name(self) -> str:
        """`topic/log/row/seed`."""
        return f"{self.topic}/{self.log}/{self.row}/{self.seed}"


@dataclass(frozen=True)
class Suite:
    """The content of `suite.toml`."""

    logs: Mapping[str, LogEntry]
    topics: Mapping[str, Topic]
    _runs: dict[str, Run] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_runs", {run.name: run for run in self._expanded()})
        for topic in self.topics:
            self._check(topic)

    @classmethod
    def read(cls, path: Path) -> Suite:
        """Errors: a missing or invalid file, unknown and missing keys, rows and logs that do not exist."""
        try:
            document = tomllib.loads(path.read_text())
        except OSError as error:
            raise InputError(f"{path} cannot be read ({error.strerror}); run from the root of the checkout") from error
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"{path} is not valid TOML: {error}") from error
        try:
            logs = {name: LogEntry(**entry) for name, entry in document.get("logs", {}).items()}
            topics = {name: Topic(**entry) for name, entry in document.get("topics", {}).items()}
        except ValidationError as error:
            raise InputError(f"{path}: {first_problem(error)}") from error
        return cls(logs, topics)

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs.values())

    def row(self, run: Run) -> Row:
        """The row of a run, with the settings of its log."""
        row = self.topics[run.topic].rows[run.row]
        settings = row.settings | row.on.get(run.log, {})
        settings = {name: None if value == "null" else value for name, value in settings.items()}
        return row.model_copy(update={"settings": settings})

    def find(self, name: str) -> Run:
        """The run with this name. Errors: there is none."""
        if name not in self._runs:
            raise InputError(f"run '{name}' is not in the suite{nearest(name, self._runs)}")
        return self._runs[name]

    def matching(self, patterns: Sequence[str]) -> list[Run]:
        """The runs whose name matches a pattern, such as "main/ml1m/*"; "main/ml1m" matches all runs below it."""
        found = {}
        for pattern in patterns:
            own = [run for run in self if fnmatchcase(run.name, pattern) or run.name.startswith(f"{pattern}/")]
            if not own:
                raise InputError(f"no run matches '{pattern}'{nearest(pattern, [*self.topics, *self._runs])}")
            found |= {run.name: run for run in own}
        return list(found.values())

    def behind(self, run: Run, named: str) -> Run:
        """The run that a row refers to, on the same log: "sasrec" of the same topic, "main/dtr" of another."""
        topic, _, row = named.rpartition("/")
        for seed in (run.seed, 0):
            name = Run(topic or run.topic, run.log, row, seed).name
            if name in self._runs:
                return self._runs[name]
        raise InputError(f"{run.name} names '{named}', which is not run on {run.log}; name a row that is")

    def shown(self, topic: str, log: str, row: str) -> list[Run]:
        """The runs of a row by seed; if the row has `same`, those of that row."""
        same = self.topics[topic].rows[row].same
        if same is not None:
            topic, _, row = same.rpartition("/")
        return [run for run in self if (run.topic, run.log, run.row) == (topic, log, row)]

    def before(self, run: Run) -> dict[str, Run]:
        """The runs whose folder a run needs, by setting."""
        return {setting: self.behind(run, name) for setting, name in self.row(run).start.items()}

    def _expanded(self) -> Iterator[Run]:
        for name, topic in self.topics.items():
            for log in topic.logs:
                for key, row in topic.rows.items():
                    if row.same is None and (row.logs is None or log in row.logs):
                        seeds = topic.seeds_of.get(log, topic.seeds)
                        yield from (Run(name, log, key, seed) for seed in row.seeds(log, seeds))

    def _check(self, name: str) -> None:
        topic = self.topics[name]
        of_rows = (log for row in topic.rows.values() for log in (*(row.logs or ()), *row.named_once))
        for log in (*topic.logs, *topic.seeds_of, *topic.published, *of_rows):
            if log not in self.logs:
                raise InputError(f"topic {name}: log '{log}' does not exist{nearest(log, self.logs)}")
        if topic.against is not None and topic.against not in topic.rows:
            raise InputError(
                f"topic {name}: against='{topic.against}' is not a row{nearest(topic.against, topic.rows)}"
            )
        for run in self:
            if run.topic == name:
                self.before(run)
        for key, row in topic.rows.items():
            if row.same is not None and not any(self.shown(name, log, key) for log in topic.logs):
                raise InputError(
                    f"topic {name}: row {key} is the same as '{row.same}', which is not a row of the suite"
                )
