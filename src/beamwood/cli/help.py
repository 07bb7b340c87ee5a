"""The output of `--help`: an example, then the most common options, on one screen; `--help-all` lists all.

The command-line page of the documentation is generated from the same descriptions.
"""

from __future__ import annotations

import inspect
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import ArgumentInfo, OptionInfo

from beamwood.cli.output import say
from beamwood.cli.shown import show_steps
from beamwood.cli.typed import check_once, with_paths
from beamwood.errors import InputError

__all__ = [
    "Described",
    "HelpfulCommand",
    "HelpfulGroup",
    "OptionLine",
    "described",
    "lines_of_group",
]

_WIDEST = 100
_MARGIN = 22


@dataclass(frozen=True, slots=True)
class OptionLine:
    """One argument or option: its form, meaning and default; `further` ones are listed by `--help-all` only."""

    typed: str
    meaning: str
    default: str | None = None
    required: bool = False
    further: bool = False

    @property
    def words(self) -> str:
        """The meaning, with the default."""
        # Blanks allow a long list to wrap.
        default = self.default if self.default is None or len(self.default) < 40 else self.default.replace(",", ", ")
        return self.meaning if default is None else f"{self.meaning} [default: {default}]"


@dataclass(frozen=True, slots=True)
class Described:
    """A command: its name, summary, runnable examples, and options."""

    name: str
    summary: str
    examples: tuple[str, ...]
    options: tuple[OptionLine, ...]

    @property
    def usage(self) -> str:
        """The call: arguments, and required options."""
        typed = [one.typed if one.required else f"[{one.typed}]" for one in self.options if one.typed[0] != "-"]
        needed = [one.typed for one in self.options if one.typed[0] == "-" and one.required]
        return " ".join(["beamwood", self.name, *typed, *needed, "[options]"])

    @property
    def option_names(self) -> set[str]:
        """The long names of its options, as "--k" of "-k, --k N"."""
        return {word for one in self.options for word in re.split("[ ,/]+", one.typed) if word.startswith("--")}

    def lines(self, *, everything: bool, width: int) -> Iterator[str]:
        """The help as lines of a terminal."""
        yield from _examples(self.examples)
        yield ""
        yield f"Usage: {self.usage}"
        yield ""
        yield from textwrap.wrap(self.summary, width)
        yield ""
        shown = [one for one in self.options if everything or not one.further]
        rows = [(one.typed, one.words) for one in shown]
        left = len(self.options) - len(shown)
        if left:
            rows.append(("--help-all", f"List every option, {left} more."))
        yield from _columns(rows, width)


def _note(ctx: typer.Context, parameter: typer.CallbackParam, value: bool) -> None:
    ctx.meta[f"beamwood.{parameter.name}"] = value


def _of_every_command(
    quiet: Annotated[
        bool,
        typer.Option(
            "-q", "--quiet", hidden=True, expose_value=False, callback=_note, help="Print only results and errors."
        ),
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "-v", "--verbose", hidden=True, expose_value=False, callback=_note, help="Also print the time of each step."
        ),
    ] = False,
) -> None:
    """The verbosity on stderr; stored for the command rather than passed to it."""


def described(command: Callable[..., None], examples: Iterable[str]) -> Described:
    """A command as its signature and its docstring describe it."""
    summary = " ".join((command.__doc__ or "").split())
    return Described(command.__name__, summary, tuple(examples), (*_options(command), *_options(_of_every_command)))


def _options(command: Callable[..., None]) -> Iterator[OptionLine]:
    hints = get_type_hints(command, include_extras=True)
    for name, parameter in inspect.signature(command).parameters.items():
        kind, info = get_args(hints[name])[:2]
        assert isinstance(info, ArgumentInfo | OptionInfo)
        if isinstance(info, ArgumentInfo) and info.hidden:
            continue
        required = parameter.default is inspect.Parameter.empty
        default = (
            None if required or parameter.default is None or parameter.default is False else str(parameter.default)
        )
        meaning = " ".join((info.help or "").split())
        if isinstance(info, ArgumentInfo):
            yield OptionLine(info.metavar or name.upper(), meaning, None, required)
            continue
        # Typer stores the first name as the default.
        names = [each for each in (info.default, *(info.param_decls or ())) if isinstance(each, str)]
        typed = " ".join([", ".join(names), *([] if kind is bool else [info.metavar or "TEXT"])])
        yield OptionLine(typed, meaning, default, required, info.hidden)


def lines_of_group(summary: str, example: str, commands: Iterable[Described], *, width: int) -> Iterator[str]:
    """The help of the program: one line for each command."""
    yield from _examples([example])
    yield ""
    yield "Usage: beamwood COMMAND [options]"
    yield ""
    yield from textwrap.wrap(summary, width)
    yield ""
    yield from _columns([(one.name, f"{one.summary.split('. ')[0].removesuffix('.')}.") for one in commands], width)
    yield ""
    yield from _columns(
        [
            ("COMMAND --help", "Say more of one command."),
            ("--version", "Print the version."),
            ("--install-completion", "Let the shell complete commands, options and methods."),
        ],
        width,
    )


def _examples(examples: Iterable[str]) -> Iterator[str]:
    first, *others = examples
    yield f"Example: {first}"
    for other in others:
        yield f"         {other}"


def _columns(rows: Iterable[tuple[str, str]], width: int) -> Iterator[str]:
    for left, right in rows:
        first, *others = textwrap.wrap(right, width - _MARGIN - 2) or [""]
        if len(left) <= _MARGIN - 1:
            yield f"  {left:<{_MARGIN}}{first}".rstrip()
        else:
            yield f"  {left}"
            others = [first, *others]
        for other in others:
            yield " " * (_MARGIN + 2) + other


def _width() -> int:
    return min(max(shutil.get_terminal_size().columns, 40), _WIDEST)


def _print(lines: Iterable[str], code: int = 0) -> None:
    say("\n".join(lines), sys.stdout)
    raise typer.Exit(code)


class HelpfulCommand(TyperCommand):
    """A command whose help begins with an example, and whose steps are displayed; its epilog has an example a line."""

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        program = typer.Typer(add_completion=False)
        program.command()(_of_every_command)
        self.params += typer.main.get_command(program).params

    @property
    def page(self) -> Described:
        """Its help."""
        assert self.callback is not None
        return described(self.callback, (self.epilog or "").splitlines())

    def invoke(self, ctx: Any) -> Any:
        """Run it with the requested verbosity. Errors: quiet and verbose together."""
        quiet, verbose = (ctx.meta.get(f"beamwood.{name}", False) for name in ("quiet", "verbose"))
        if quiet and verbose:
            raise InputError("--quiet and --verbose contradict each other; leave one out")
        with show_steps(quiet=quiet, verbose=verbose):
            return super().invoke(ctx)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Handle `--help-all`, else parse as usual and apply the checks of all commands."""
        if "--help-all" in args:
            _print(self.page.lines(everything=True, width=_width()))
        if ctx.resilient_parsing:
            return super().parse_args(ctx, args)
        check_once(self.make_parser(ctx).parse_args(args=list(args))[2])
        rest = super().parse_args(ctx, args)
        ctx.params = with_paths(self.params, ctx.params)
        return rest

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the short help."""
        del ctx
        lines = self.page.lines(everything=False, width=_width())
        formatter.write("\n".join(lines) + "\n")


class HelpfulGroup(TyperGroup):
    """The program, whose help begins with an example."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Handle `--help-all` by the help of every command, no arguments by the list of them, else parse as usual."""
        if not args and not ctx.resilient_parsing:  # which a shell that completes words asks for
            _print(self._lines(), code=2)
        if args[:1] == ["--help-all"]:
            parts = (page.lines(everything=True, width=_width()) for page in self._pages())
            _print(line for part in parts for line in (*part, ""))
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the list of the commands."""
        del ctx
        formatter.write("\n".join(self._lines()) + "\n")

    def _lines(self) -> Iterator[str]:
        pages = self._pages()
        example = next(page.examples[0] for page in pages if page.name == "fit")
        return lines_of_group(self.help or "", example, pages, width=_width())

    def _pages(self) -> list[Described]:
        """The help of every command, in the order of their definition."""
        return [command.page for command in self.commands.values() if isinstance(command, HelpfulCommand)]
