"""A short form of `make survive`: a kill or two of each command, and what is not a survival is found."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from cli_cases import ENVIRONMENT
from survive import run
from survive.child import phase_of
from survive.jobs import JOBS


def survived(program, **given):
    """The exit code and the output of the program."""
    environment = ENVIRONMENT | {f"SURVIVE_{name.upper()}": str(value) for name, value in given.items()}
    done = subprocess.run(program, capture_output=True, text=True, env=environment, check=False, timeout=580)
    return done.returncode, done.stdout + done.stderr


def test_what_is_killed_goes_on():
    code, said = survived([sys.executable, str(Path(run.__file__))], kills=len(JOBS) + 1, seed="short")
    assert code == 0, said
    # A case may be killed again while it goes on.
    told = re.search(
        rf"^(\d+) of {len(JOBS) + 1} kills with seed short, 0 with something lost or left;", said, re.MULTILINE
    )
    assert told is not None, said
    assert int(told[1]) > len(JOBS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "jobs", "found"),
    [
        # A file that is written in its place, and holds half of it at a call that changes the disk.
        (
            "half = lambda to: (to.write_bytes(b'half'), os.truncate(to, 4))\n"
            "replace.whole_file = contextmanager(lambda to: iter([half(to) and to]))",
            "export",
            "neither the old nor the new",
        ),
        # Leftovers that nobody removes, and those of the living that somebody does.
        (
            "replace.clean = write.clean = lambda target: None",
            "overwrite",
            "left over, or missing: ['.model.bbbbbbbbbb",
        ),
        ("system.hold_file = lambda *_, **__: None", "overwrite", "the temporary of a living process is gone"),
    ],
)
def test_what_is_lost_or_left_is_found(broken, jobs, found, tmp_path):
    program = tmp_path / "broken.py"
    program.write_text(
        f"import sys\nsys.path.insert(0, {str(Path(run.__file__).parents[1])!r})\n"
        "import os\nfrom contextlib import contextmanager\n"
        "from beamwood import system\n"
        "from beamwood.artefact import replace, write\n"
        f"{broken}\n"
        "from survive import run\n"
        "sys.exit(run.main())\n"
    )
    code, said = survived([sys.executable, str(program)], kills=8, jobs=jobs)
    assert code == 1, said
    assert found in said


def test_the_innermost_known_frame_says_where_a_kill_fell():
    stack = 'File "beamwood/artefact/write.py", line 1 in sync\nFile "beamwood/training/loop.py", line 2 in _validate\n'
    assert phase_of(stack) == "save"
    assert phase_of(stack.partition("\n")[2]) == "validation"
    assert phase_of("") == "start"
