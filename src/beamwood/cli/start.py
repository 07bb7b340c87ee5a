"""The fitted folders that a fit starts from."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Annotated

import typer

from beamwood.cli import options as o
from beamwood.errors import InputError

__all__ = ["StartOptions"]


@dataclass(frozen=True, slots=True)
class StartOptions:
    """The fitted folders that a method starts from."""

    start: Annotated[
        o.Text,
        typer.Option(
            "--from",
            metavar="FOLDER",
            hidden=True,
            help="A fitted model from which the method continues.",
        ),
    ] = None
    retriever: Annotated[
        o.Text,
        typer.Option("--retriever", metavar="FOLDER", hidden=True, help="The first stage of two_stage."),
    ] = None
    ranker: Annotated[
        o.Text,
        typer.Option(
            "--ranker",
            metavar="FOLDER",
            hidden=True,
            help="The second stage of two_stage: a folder or a counting method. Default: train a ranker.",
        ),
    ] = None

    @property
    def folders(self) -> dict[str, str]:
        """The given fitted folders, by option."""
        every = {"--from": self.start, "--retriever": self.retriever, "--ranker": self.ranker}
        return {option: folder for option, folder in every.items() if folder is not None}

    def check_apart(self, out: str) -> None:
        """Errors: the output replaces one of them."""
        for option, folder in self.folders.items():
            if os.path.isdir(folder) and os.path.realpath(folder) == os.path.realpath(out):
                raise InputError(f"--out {out} is the folder of {option}; name another, so that none is lost")
