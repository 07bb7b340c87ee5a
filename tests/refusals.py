"""Refused files whose error names a repair command, and the result of that command."""

import subprocess
import sys

import pytest

from beamwood.data import read_log
from beamwood.errors import InputError


def written(path, lines, encoding="utf-8"):
    path.write_text("".join(f"{line}\n" for line in lines), encoding=encoding)
    return path


def refused(source, **options):
    with pytest.raises(InputError) as error:
        read_log(source, **options)
    return str(error.value)


def typed(message, folder):
    """Run the command at the end of a message in a folder; return the file that it wrote."""
    command = message.partition("as with: ")[2].replace("python3", sys.executable)
    subprocess.run(["sh", "-c", command], cwd=folder, check=True, capture_output=True)
    return folder / command.rpartition("> ")[2].strip()
