"""`/v1/experiments`: which model answers whom, and what became of the answers."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from beamwood.serve.experiments import Experiment
from beamwood.serve.http.route import Call, Route
from beamwood.serve.monitoring.outcomes import read_group
from beamwood.serve.service import Service

__all__ = ["routes"]


class Group(Struct):
    """Answers of one model in one arm, and the events attributed to them by request_id.

    `hits`: answers with an event on one of their items; `misses`: events on other items, by the stage that lost them.
    """

    experiment: str
    arm: str
    model: str
    answers: int
    hits: int
    hit_rate: float
    misses: dict[str, int]


class Report(Struct):
    """The stored experiment, and counts of all answers so far.

    `experiment`: null without one, and where it cannot be read. `not_followed`: why its arms do not answer here, null
    where they do.
    """

    experiment: Experiment | None
    groups: list[Group]
    not_followed: str | None


def routes(service: Service) -> list[Route]:  # noqa: ARG001
    """The endpoints of experiments."""
    path = "/v1/experiments"
    return [
        Route("GET", path, _report, "admin", "Get the experiment and hit rates by arm", Report),
        Route("PUT", path, _start, "admin", "Start an experiment that splits users among models", Report, Experiment),
        Route("DELETE", path, _stop, "admin", "Stop the experiment", Report),
    ]


async def _report(call: Call) -> Report:
    tallies = await call.service.histories.call("tallies", lambda store: store.tallies())
    experiments = call.service.experiments
    return Report(experiments.stored, _groups(tallies), experiments.not_followed)


def _groups(tallies: Mapping[tuple[str, str], int]) -> list[Group]:
    groups: dict[str, Group] = {}
    for (label, name), count in sorted(tallies.items()):
        if label not in groups:
            groups[label] = Group(*read_group(label), 0, 0, 0.0, {})
        group = groups[label]
        if name == "answers":
            group.answers = count
        elif name == "hits":
            group.hits = count
        else:
            group.misses[name.removeprefix("missed_")] = count
    for group in groups.values():
        group.hit_rate = round(group.hits / group.answers, 6) if group.answers else 0.0
    return list(groups.values())


async def _start(call: Call) -> Report:
    await call.service.experiments.start(call.body)
    return await _report(call)


async def _stop(call: Call) -> Report:
    await call.service.experiments.stop()
    return await _report(call)
