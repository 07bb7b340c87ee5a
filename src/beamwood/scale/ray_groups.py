"""Batch recommendations on a Ray cluster: actors answer the groups, this process writes the file.

Each actor opens the model at its path, so every node needs the folder there, as on shared storage. Actors on one node
share the memory-mapped weights.
"""

from __future__ import annotations

import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beamwood.errors import InputError
from beamwood.extras import asking_for
from beamwood.retrieval.batch.group_answers import AnswerRows, Group, GroupAnswers, GroupOptions

__all__ = ["RayGroups", "Worker"]

# How often Ray starts an actor again whose process or node was lost, and repeats its group.
_RETRIES = 3
# Seconds until a cluster that does not answer is given up.
_PATIENCE = 10.0


class Worker:
    """An actor: the model of a folder, opened on first use and again after a restart, maybe on another node.

    `checksum`: of the model that is to be there.
    """

    def __init__(self, folder: str, checksum: str, opened: Callable[[int], AnswerRows], options: GroupOptions) -> None:
        self._folder, self._checksum, self._opened, self._options = folder, checksum, opened, options
        self._answers: GroupAnswers | None = None

    def check(self) -> None:
        """Errors: no folder on this node, or one with another model."""
        from beamwood.artefact import read_artefact

        if read_artefact(self._folder, kind="retriever", verify=False).manifest["checksum"] != self._checksum:
            raise InputError(f"a node of the Ray cluster has another model in {self._folder}; copy this one there")

    def encoded(self, group: Group) -> bytes:
        """See `GroupAnswers.encoded`. Errors: as `check`."""
        if self._answers is None:
            self.check()
            self._answers = GroupAnswers(self._opened(self._options.threads), self._options)
        return self._answers.encoded(group)


@dataclass(frozen=True, slots=True)
class RayGroups:
    """An `Engine` on the Ray cluster at `address`: "auto", "HOST:PORT", or "local" for one on this machine.

    `folder`: of the model, with `checksum`; `opened` opens it on a node with a number of threads. An actor reserves as
    many processors as the job has threads. Errors: `InputError` without a cluster or a free processor, on a node with
    another model, and where all actors are lost.
    """

    address: str
    folder: Path
    checksum: str
    opened: Callable[[int], AnswerRows]

    def __call__(self, options: GroupOptions, groups: Iterable[Group]) -> Iterator[tuple[int, bytes]]:
        with _cluster(self.address) as ray:
            yield from self._answered(ray, options, deque(groups))

    def _answered(self, ray: Any, options: GroupOptions, todo: deque[Group]) -> Iterator[tuple[int, bytes]]:
        # What each running call answers; None while an actor looks at its folder.
        running: dict[Any, tuple[Any, Group | None]] = {
            worker.check.remote(): (worker, None) for worker in self._workers(ray, options, len(todo))
        }
        idle: deque[Any] = deque()
        while todo or any(group is not None for _, group in running.values()):
            while todo and idle:
                worker, group = idle.popleft(), todo.popleft()
                running[worker.encoded.remote(group)] = worker, group
            if not running:
                raise InputError("all workers of the Ray cluster were lost; start more, and pass --resume")
            (ready,), _ = ray.wait(list(running), num_returns=1)
            worker, answered = running.pop(ready)
            try:
                found = ray.get(ready)
            except ray.exceptions.RayTaskError as error:
                raise error.cause from None
            except ray.exceptions.RayError:
                # Lost beyond its restarts: another actor answers the group.
                todo.extendleft([] if answered is None else [answered])
                continue
            idle.append(worker)
            if answered is not None:
                yield answered.number, found

    def _workers(self, ray: Any, options: GroupOptions, num_groups: int) -> list[Any]:
        processors = int(ray.cluster_resources().get("CPU", 0))
        count = min(num_groups, processors // options.threads)
        if num_groups and count == 0:
            raise InputError(f"the Ray cluster has {processors} processors; lower --threads {options.threads}")
        given = {"num_cpus": options.threads, "max_restarts": _RETRIES, "max_task_retries": _RETRIES}
        actor = ray.remote(Worker).options(**given)
        model = str(self.folder.absolute()), self.checksum, self.opened
        return [actor.remote(*model, options) for _ in range(count)]


def _connect(address: str) -> None:
    """Errors: nobody listens at the HOST:PORT of an address, which Ray would retry for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host:
        socket.create_connection((host, int(port)), _PATIENCE).close()


@contextmanager
def _cluster(address: str) -> Iterator[Any]:
    """The module `ray`, connected to a cluster for the context."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    with asking_for("--ray-address"):
        import ray
    try:
        _connect(address)
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(
            f"--ray-address {address}: no Ray cluster answers there ({str(error).splitlines()[0]}); start one with "
            "`ray start --head`, and name its HOST:PORT"
        ) from None
    try:
        yield ray
    finally:
        ray.shutdown()
