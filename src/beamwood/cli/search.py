"""`beamwood fit` without a method: a search for the best model of a log, saved as soon as there is one."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from beamwood.cli import options as o
from beamwood.cli.data_source import EACH_ALIKE, DataSource
from beamwood.cli.interrupts import keeping
from beamwood.cli.output import finish
from beamwood.cli.written import FitOptions, path_beside
from beamwood.errors import ArtefactError, InputError, NotSavedError, nearest
from beamwood.steps import tell
from beamwood.words import followed

if TYPE_CHECKING:
    from beamwood.data import Split
    from beamwood.recipes.portfolio.search import PortfolioResult
    from beamwood.retrieval.retriever import Retriever

__all__ = ["BudgetOptions", "FolderSearch"]

SUFFIX = ".search"
"""The suffix of the folder with all fitted models, beside the output."""


@dataclass(frozen=True, slots=True)
class BudgetOptions:
    """The limits on the cost of an answer in a search, and the metric that it maximises."""

    budget_ms: Annotated[
        o.Number,
        typer.Option("--budget-ms", metavar="X", help="Maximum latency in milliseconds, without --method."),
    ] = None
    budget_mb: Annotated[
        o.Number,
        typer.Option("--budget-mb", metavar="X", hidden=True, help="Maximum memory in megabytes, without --method."),
    ] = None
    monitor: Annotated[
        o.Text,
        typer.Option(
            "--monitor",
            metavar="VIEW/METRIC",
            hidden=True,
            help="What the search maximises, without --method: removed/f@20, or kept/f@20 where items are taken again.",
        ),
    ] = None

    def check_unused(self, method: str) -> None:
        """Errors: an option of a search without one."""
        given = {"--budget-ms": self.budget_ms, "--budget-mb": self.budget_mb, "--monitor": self.monitor}
        for option, value in given.items():
            if value is not None:
                instead = ", or use --set choose.monitor=" + str(value) if option == "--monitor" else ""
                raise InputError(
                    f"{option} is for the search for the best method, and --method {method} names one; leave one out"
                    f"{instead}"
                )

    def check(self) -> None:
        """Errors: a bound that is not above 0, an unknown metric."""
        from beamwood.fitting.validation import MEASURED
        from beamwood.recipes.portfolio.wanted import check_bounds

        check_bounds({"budget_ms": self.budget_ms, "budget_mb": self.budget_mb})
        if self.monitor is not None and self.monitor not in MEASURED:
            raise InputError(f"--monitor {self.monitor} is not measured{nearest(self.monitor, MEASURED)}")

    def maximised(self, split: Split) -> str:
        """The metric of the search, with a line where another one may be meant."""
        from beamwood.recipes.portfolio.find import MONITOR

        if self.monitor is None and 2 * split.test.labels_seen >= len(split.test.labels.items):
            tell("the search judges lists without seen items; --monitor kept/f@20 judges lists with them")
        return self.monitor or MONITOR


@dataclass(frozen=True, slots=True)
class FolderSearch:
    """A search whose best model so far is in the output folder, and its parts in one beside it."""

    asked: FitOptions
    budgets: BudgetOptions
    source: DataSource

    def run(self, read: Callable[[], Split], *, as_json: bool) -> None:
        """Search, save, and print the table. Errors: as in `_show`, the best so far being saved."""
        from beamwood.recipes.portfolio.find import find

        self.budgets.check()
        asked, run = self.asked, self.asked.run
        folder = path_beside(asked.out, SUFFIX)
        saved = self._check_places(folder)
        split = read()
        if split.dataset.weights is not None:
            tell(f"trained methods learn {EACH_ALIKE}")

        def save(fitted: Retriever) -> None:
            nonlocal saved
            # Only what this search saved is replaced without being asked.
            unchanged = saved is not None and saved == _found_in(asked.out)
            try:
                self._save(fitted, split, overwrite=run.overwrite or unchanged)
            finally:
                saved = _found_in(asked.out)

        with keeping(lambda: f"what was found so far is in {folder}; the same command with --resume goes on"):
            found = find(
                split,
                time_limit=asked.budget,
                budget_ms=self.budgets.budget_ms,
                budget_mb=self.budgets.budget_mb,
                monitor=self.budgets.maximised(split),
                seed=asked.seed,
                folder=folder,
                resume=run.resume,
                overwrite=run.overwrite,
                better=save,
                say=tell,
            )
            save(found.retriever)
        kept = f"{asked.out} is saved"
        if found.interrupted:
            kept = f"the best so far is in {asked.out}; the same command with --resume goes on"
        with keeping(lambda: kept):
            self._show(found, f"interrupted; {kept}" if found.interrupted else None, as_json=as_json)

    def _show(self, found: PortfolioResult, stopped: str | None, *, as_json: bool) -> None:
        """Print what was found, and write its page; `stopped`: the line of an interrupted search.

        Errors: `typer.Exit`, 130 where there is that line.
        """
        from beamwood.recipes.portfolio.table import table_lines

        asked = self.asked
        document = {"out": asked.out, "method": found.document["chosen"], "portfolio": found.document}
        document |= {"data": found.retriever.metadata["data"]}
        page = None
        if asked.written.html is not None:
            from beamwood.report.search import search_page

            page = asked.written.html, search_page(document)
        finish(
            document, lambda: print("\n".join(table_lines(found.document))), as_json=as_json, page=page, stopped=stopped
        )
        tell(f"saved in {asked.out}; next: {shlex.join(('beamwood', 'evaluate', asked.out))}")

    def _check_places(self, folder: Path) -> str | None:
        """The checksum of a model that a resumed search may replace, if any.

        Errors: another search, none to resume, or an output that may not be replaced.
        """
        from beamwood.artefact import check_output
        from beamwood.recipes.portfolio.search_folder import SearchFolder

        run = self.asked.run
        SearchFolder(folder, {}).check(resume=run.resume, overwrite=run.overwrite)
        own = _found_in(self.asked.out) if run.resume and os.path.exists(folder) else None
        check_output(self.asked.out, overwrite=run.overwrite or own is not None)
        return own

    def _save(self, fitted: Retriever, split: Split, *, overwrite: bool) -> None:
        """Save it as the output. Errors: another model is there, without `overwrite`."""
        from beamwood.cli.origin import with_origin

        try:
            self.asked.written.of(with_origin(fitted, self.source, split)).save(self.asked.out, overwrite=overwrite)
        except NotSavedError:
            raise
        except ArtefactError as error:
            fix = "with --overwrite --resume the search goes on with what it has found"
            raise ArtefactError(followed(str(error), fix)) from error


def _found_in(out: str) -> str | None:
    """The checksum of the output where it is a model that a search found."""
    from beamwood.artefact import read_manifest
    from beamwood.artefact.replace import recover

    try:
        manifest = read_manifest(recover(Path(os.path.realpath(out))))
    except (ArtefactError, OSError):
        return None
    return str(manifest["checksum"]) if "portfolio" in manifest else None
