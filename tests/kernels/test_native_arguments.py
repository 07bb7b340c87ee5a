"""No argument of any kind crashes the process."""

import subprocess
import sys

import native_arguments
from cli_cases import ENVIRONMENT


def test_every_wrong_argument_is_refused():
    done = subprocess.run(
        [sys.executable, native_arguments.__file__], capture_output=True, text=True, env=ENVIRONMENT, check=False
    )
    last = done.stdout.splitlines()[-1:]
    assert done.returncode == 0, (last, done.stderr[-500:])
    calls, refused = (int(word) for word in last[0].split() if word.isdigit())
    assert calls > 3500
    assert refused > 0.99 * calls
