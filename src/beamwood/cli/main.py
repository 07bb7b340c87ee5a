"""The entry point: which subcommands there are, and what ends a command with which exit code."""

from __future__ import annotations

import errno
import json
import signal
import sys
import traceback
from typing import Annotated, Any

import typer

from beamwood import __version__
from beamwood.cli import commands, interrupts
from beamwood.cli.help import HelpfulCommand, HelpfulGroup, commands_by_name
from beamwood.cli.output import prepare_streams, say, silence
from beamwood.cli.typed import with_fix
from beamwood.cli.words import in_words_of
from beamwood.errors import InputError
from beamwood.extras import asking_for
from beamwood.system import address_limit
from beamwood.training.interrupt import Interrupted

__all__ = ["app", "run"]

# Below it threads of the libraries that read tables cannot start, which ends the process without a word.
_ADDRESSES = 1_400 * 2**20
_NO_ROOM = ("allocate memory", "out of memory", "failed to map segment", "can't start new thread")
OK, FAULT, WRONG_INPUT, INTERRUPTED = 0, 1, 2, 130

app = typer.Typer(
    name="beamwood",
    cls=HelpfulGroup,
    help="Learn from a log of who took what, and recommend. The log is a table with a column of users, one of items "
    "and, if known, one of times.",
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
    """What belongs to no one command; its help is the app's."""


for command in commands.COMMANDS:
    app.command(name=command.__name__, cls=HelpfulCommand)(command)


def run() -> None:
    """Run the command line and exit: 0 done, 2 the input is wrong, 1 a fault of ours, 130 interrupted."""
    prepare_streams()
    limit = address_limit()
    if limit is not None and limit < _ADDRESSES:
        wanted = f"beamwood needs {_ADDRESSES // 2**20:,} MiB of address space and this shell allows {limit // 2**20:,}"
        sys.exit(failed(f"{wanted}; raise ulimit -v", WRONG_INPUT, as_json="--json" in sys.argv))
    # Training waits for the end of a step; everything else ends as on Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # A server ends by itself, when those who ask have their answers.
    if sys.argv[1:2] != ["serve"]:
        interrupts.Watch(as_json="--json" in sys.argv)
    sys.exit(main(sys.argv[1:]))


def main(arguments: list[str]) -> int:
    """Run one command line and return its exit code; an error is one line on stderr, and JSON with `--json`.

    When the reader of stdout leaves, as `head` does, nothing more is said and all is well.
    """
    as_json = "--json" in arguments
    interrupts.begin()
    for argument in arguments:
        if not _is_text(argument):
            return failed(f"the argument {argument!a} is not UTF-8; write it so", WRONG_INPUT, as_json=as_json)
    try:
        with asking_for("this command"):
            result = app(arguments, prog_name="beamwood", standalone_mode=False)
        sys.stdout.flush()
        # Typer makes a number of Ctrl-C and says nothing.
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
        return failed(in_words_of(arguments, str(error)), WRONG_INPUT, as_json=as_json)
    # Typer's own, or those of click, which older versions of it need and newer ones do not install.
    if type(error).__module__.startswith(("typer", "click")) and hasattr(error, "format_message"):
        return failed(_as_typed(error, arguments), WRONG_INPUT, as_json=as_json)
    if isinstance(error, Exception) and _is_of_memory(error):
        return _without_memory(error, as_json=as_json)
    if isinstance(error, SystemExit | OSError):
        return _without_output(error, as_json=as_json)
    return _fault(error, as_json=as_json)


def _as_typed(error: Any, arguments: list[str]) -> str:
    return with_fix(error.format_message(), arguments[0] if arguments else None, commands_by_name())


def _stopped(line: str, *, as_json: bool) -> int:
    """Say what is kept, unless the watch has said it and ends the process."""
    return failed(line, INTERRUPTED, as_json=as_json) if interrupts.claimed() else INTERRUPTED


def _is_of_memory(error: Exception) -> bool:
    """Whether numpy, Python, torch or the loader of libraries found no room; most of them say so in words alone."""
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    return isinstance(error, RuntimeError | ImportError | OSError) and any(word in str(error) for word in _NO_ROOM)


def _without_memory(error: Exception, *, as_json: bool) -> int:
    return failed(
        f"there is too little memory ({error}); lower what was set high, such as batch_size or width, or take a "
        "machine, or a limit (ulimit -v), with more",
        WRONG_INPUT,
        as_json=as_json,
    )


def _without_output(error: SystemExit | OSError, *, as_json: bool) -> int:
    """What ends a command whose output nobody reads, or that has no room; typer and rich make 1 of the former."""
    if isinstance(error, SystemExit) and not error.code:  # what completes words for a shell ends so
        return OK
    if isinstance(error, BrokenPipeError) or isinstance(error.__context__, BrokenPipeError):
        silence(sys.stdout)
        return OK
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        silence(sys.stdout)
        return failed(f"nothing more could be written ({error}); free some space", WRONG_INPUT, as_json=as_json)
    return _fault(error, as_json=as_json)


def _fault(error: BaseException, *, as_json: bool) -> int:
    from beamwood.methods.from_file import line_of_own

    say("".join(traceback.format_exception(error)), sys.stderr)
    own = line_of_own(error)
    if own is not None:
        words = f"the method file {own}: {type(error).__name__}: {error}; mend the file"
        return failed(words, WRONG_INPUT, as_json=as_json)
    return failed(f"a fault of beamwood's, not yours: {type(error).__name__}: {error}", FAULT, as_json=as_json)


def _is_text(argument: str) -> bool:
    """Whether the bytes typed were UTF-8; others stand for themselves as lone surrogates, which no file can hold."""
    return not any("\ud800" <= character <= "\udfff" for character in argument)


def failed(message: str, code: int, *, as_json: bool) -> int:
    """Say what went wrong, in one line."""
    line = " ".join(message.split())
    say(f"beamwood: {line}", sys.stderr)
    if as_json:
        say(json.dumps({"error": line, "exit": code}), sys.stdout)
    return code
