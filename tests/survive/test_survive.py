"""A short form of `make survive`: one or two kills of each command, and the detection of failures."""

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


def test_killed_commands_resume():
    code, said = survived([sys.executable, str(Path(run.__file__))], kills=len(JOBS) + 1, seed="short")
    assert code == 0, said
    # A case may be killed again while it resumes.
    told = re.search(
        rf"^(\d+) of {len(JOBS) + 1} kills with seed short, 0 with something lost or left;", said, re.MULTILINE
    )
    assert told is not None, said
    assert int(told[1]) > len(JOBS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "jobs", "found"),
    [
        # A file written in place, which is incomplete at a call that changes the disk.
        (
            "half = lambda to: (to.write_bytes(b'half'), os.truncate(to, 4))\n"
            "replace.whole_file = contextmanager(lambda to: iter([half(to) and to]))",
            "export",
            "neither the old nor the new",
        ),
        # Leftover files that are not removed, and files of a live process that are.
        (
            "replace.clean = write.clean = lambda target: None",
            "overwrite",
            "left over, or missing: ['.model.bbbbbbbbbb",
        ),
        ("system.hold_file = lambda *_, **__: None", "overwrite", "the temporary of a living process is gone"),
    ],
)
def test_lost_data_and_leftover_files_are_detected(broken, jobs, found, tmp_path):
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
    code, said = survived([sys.executable, str(program)], kills=24, jobs=jobs)
    assert code == 1, said
    assert found in said


def test_the_innermost_known_frame_is_the_phase_of_a_kill():
    stack = 'File "beamwood/artefact/write.py", line 1 in sync\nFile "beamwood/training/loop.py", line 2 in _validate\n'
    assert phase_of(stack) == "save"
    assert phase_of(stack.partition("\n")[2]) == "validation"
    assert phase_of("") == "start"
