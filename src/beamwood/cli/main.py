"""The entry point: subcommands, and the exit code of each kind of error."""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
import warnings
from typing import Annotated, Any

import typer

from beamwood import __version__
from beamwood.cli import interrupts
from beamwood.cli.help import HelpfulCommand, HelpfulGroup
from beamwood.cli.output import prepare_streams, say, silence, tell_warning
from beamwood.cli.registry import COMMANDS, EXAMPLES, commands_by_name
from beamwood.cli.typed import with_fix
from beamwood.cli.words import in_words_of
from beamwood.errors import InputError, is_of_full_disk, is_utf8, too_little_memory
from beamwood.extras import asking_for
from beamwood.system import address_limit
from beamwood.training.interrupt import Interrupted

__all__ = ["app", "run"]

# With less address space the threads of libraries cannot start, which ends the process silently.
_ADDRESSES = 1_400 * 2**20
OK, FAULT, WRONG_INPUT, INTERRUPTED = 0, 1, 2, 130

app = typer.Typer(
    name="beamwood",
    cls=HelpfulGroup,
    help="Learn from a log of users, items and, if known, times, and recommend items.",
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        say(f"beamwood {__version__}", sys.stdout)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of the program itself; its help is the app's."""


for command in COMMANDS:
    examples = "\n".join(EXAMPLES[command.__name__])
    app.command(name=command.__name__, cls=HelpfulCommand, epilog=examples)(command)


def run() -> None:
    """Run the command line and exit: 0 done, 2 wrong input, 1 a bug, 130 interrupted."""
    prepare_streams()
    warnings.showwarning = tell_warning
    limit = address_limit()
    if limit is not None and limit < _ADDRESSES:
        wanted = f"beamwood needs {_ADDRESSES // 2**20:,} MiB of address space and this shell allows {limit // 2**20:,}"
        sys.exit(failed(f"{wanted}; raise ulimit -v", WRONG_INPUT, as_json="--json" in sys.argv))
    # A server has handlers of its own, and ends by itself, after pending answers.
    if signal.getsignal(signal.SIGTERM) is signal.default_int_handler:
        interrupts.Watch(as_json="--json" in sys.argv)
    sys.exit(main(sys.argv[1:]))


def main(arguments: list[str]) -> int:
    """Run one command line and return its exit code; an error is one line on stderr, and JSON with `--json`.

    When the reader of stdout leaves, as `head` does, the command ends silently with success.
    """
    as_json = "--json" in arguments
    interrupts.begin()
    for argument in arguments:
        if not is_utf8(argument):
            return failed(f"the argument {argument!a} is not UTF-8; write it so", WRONG_INPUT, as_json=as_json)
    try:
        with asking_for("this command"):
            result = app(arguments, prog_name="beamwood", standalone_mode=False)
        sys.stdout.flush()
        # Typer turns SIGINT into an exit code without a message.
        return _stopped(interrupts.interrupted(), as_json=as_json) if result == INTERRUPTED else result or OK
    except typer.Exit as stop:
        return stop.exit_code
    except Interrupted as error:
        return _stopped(str(error), as_json=as_json)
    except BaseException as error:
        if isinstance(error, typer.Abort) or interrupts.is_of_stop(error):
            return _stopped(interrupts.interrupted(), as_json=as_json)
        return _ended_by(error, arguments, as_json=as_json)


def _ended_by(error: BaseException, arguments: list[str], *, as_json: bool) -> int:
    """Say what ended the command."""
    if isinstance(error, InputError):
        asked = [command for command in COMMANDS if command.__name__ in arguments[:1]]
        message = in_words_of(asked[0], str(error)) if asked else str(error)
        return failed(message, WRONG_INPUT, as_json=as_json)
    # Errors of typer, or of click, which older versions of typer need.
    if type(error).__module__.startswith(("typer", "click")) and hasattr(error, "format_message"):
        return failed(_as_typed(error, arguments), WRONG_INPUT, as_json=as_json)
    without_memory = too_little_memory(error)
    if without_memory is not None:
        return failed(
            f"{without_memory}; lower what was set high, such as batch_size or width, or take a machine, or a limit "
            "(ulimit -v), with more",
            WRONG_INPUT,
            as_json=as_json,
        )
    if isinstance(error, SystemExit | OSError):
        return _without_output(error, as_json=as_json)
    return _fault(error, as_json=as_json)


def _as_typed(error: Any, arguments: list[str]) -> str:
    options = {name: page.option_names for name, page in commands_by_name().items()}
    return with_fix(error.format_message(), arguments, options)


def _stopped(line: str, *, as_json: bool) -> int:
    """Print the line about an interrupt, unless the watch has printed it and ends the process."""
    return failed(line, INTERRUPTED, as_json=as_json) if interrupts.claimed() else INTERRUPTED


def _without_output(error: SystemExit | OSError, *, as_json: bool) -> int:
    """The end of a command whose output has no reader, or no space; typer and rich turn the former into exit code 1."""
    if isinstance(error, SystemExit) and not error.code:  # shell completion ends like this
        return OK
    if isinstance(error, BrokenPipeError) or isinstance(error.__context__, BrokenPipeError):
        silence(sys.stdout)
        return OK
    if is_of_full_disk(error):
        silence(sys.stdout)
        return failed(f"nothing more could be written ({error}); free some space", WRONG_INPUT, as_json=as_json)
    if isinstance(error, FileNotFoundError) and _is_nowhere():
        return failed("the current folder was deleted; change to one that exists", WRONG_INPUT, as_json=as_json)
    return _fault(error, as_json=as_json)


def _fault(error: BaseException, *, as_json: bool) -> int:
    from beamwood.own_file import last_own_line

    say("".join(traceback.format_exception(error)), sys.stderr)
    own = last_own_line(error)
    if own is not None:
        words = f"{own}: {type(error).__name__}: {error}; mend the file"
        return failed(words, WRONG_INPUT, as_json=as_json)
    return failed(f"internal error of beamwood: {type(error).__name__}: {error}", FAULT, as_json=as_json)


def _is_nowhere() -> bool:
    """Whether the current folder was deleted, without which no path is absolute."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def failed(message: str, code: int, *, as_json: bool) -> int:
    """Print an error as one line."""
    line = " ".join(message.split())
    say(f"beamwood: {line}", sys.stderr)
    if as_json:
        say(json.dumps({"error": line, "exit": code}), sys.stdout)
    return code
