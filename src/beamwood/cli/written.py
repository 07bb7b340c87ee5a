"""The output of `fit`, and the files beside it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from beamwood.cli import options as o
from beamwood.errors import InputError

if TYPE_CHECKING:
    from beamwood.fitting.method_config import MethodConfig
    from beamwood.methods import Method
    from beamwood.retrieval.retriever import Retriever
    from beamwood.training.budget import Budget

__all__ = ["FitOptions", "RunOptions", "WrittenOptions", "path_beside", "default_output"]


@dataclass(frozen=True, slots=True)
class WrittenOptions:
    """The saved parts of a fit: everything, or nothing of users; and a page."""

    without_histories: Annotated[
        bool, typer.Option("--without-histories", hidden=True, help="Save neither users nor histories.")
    ] = False
    html: o.Page = None

    def check(self, method: Method, config: MethodConfig) -> None:
        """Errors: `--without-histories` for a method that needs users."""
        if self.without_histories and (method.needs.knows_users(config) or method.needs.named_columns(config, "users")):
            raise InputError(f"{method.name} needs users here, and --without-histories saves none; leave one out")

    def of(self, fitted: Retriever) -> Retriever:
        """The retriever to save."""
        from beamwood.retrieval.forget import without_users

        return without_users(fitted) if self.without_histories else fitted


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Whether a run is resumed or replaced, and where its curves are written."""

    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run.")] = False
    overwrite: o.Overwrite = False
    tensorboard: Annotated[
        o.Text,
        typer.Option(
            "--tensorboard", metavar="FOLDER", hidden=True, help="Also write the training curves for TensorBoard."
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class FitOptions:
    """The options of a fit for any method: output, time limit, run and files."""

    out: str
    budget: Budget
    seed: int
    run: RunOptions
    written: WrittenOptions


def path_beside(out: str, suffix: str) -> Path:
    """A path beside the output folder: "runs/mine.run" for "runs/mine" and for "runs/mine/"."""
    return Path(f"{os.path.abspath(out)}{suffix}")


def default_output(log: str) -> str:
    """The default output of a fit of this log: "runs/log" for "data/log.csv", and for "data/log/"."""
    name = Path(os.path.abspath(log)).name.partition(".")[0]
    return str(Path("runs", name if name and not set(name) & set("*?[") else "log"))
