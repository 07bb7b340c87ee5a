"""One native core runs on every processor: it selects an instruction set, and its answers equal the reference.

Other machines are emulated by qemu-user.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig

import pytest

from bare_environment import ROOT

pytestmark = pytest.mark.slow

LIVE = "from beamwood.kernels import active_kernels as a\nimport json; print(json.dumps([a()['path'], a()['level']]))"
PYTEST = ["-m", "pytest", "-p", "no:cacheprovider", "-m", "not slow"]
SEARCH = [*PYTEST, "tests/kernels/test_search.py"]
# The output of `make aarch64`.
AARCH64 = ROOT / "build" / "aarch64" / "python"
ELF_MACHINE, OF_AARCH64 = slice(18, 20), (183).to_bytes(2, "little")


def run(*command):
    """Run it from the root with one thread and return stdout."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "BEAMWOOD"))}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=ROOT,
        env=environment | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def program(name):
    """The path of a Debian program; without it the test is skipped."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"no {name}; `make emulators` installs it where it may")
    return found


@pytest.mark.parametrize(
    ("processor", "expected"),
    [
        ("Haswell", ["native", "v3"]),
        ("Haswell,-movbe", ["native", "v2"]),
        ("Haswell,-f16c", ["native", "v2"]),
        ("Haswell,-abm", ["native", "v2"]),
        ("Nehalem", ["native", "v2"]),
        ("qemu64", ["reference", None]),
    ],
)
def test_it_selects_a_supported_instruction_set(wheel_installed, processor, expected):
    """With AVX2, without a part of its set, with the sets before it, and below every compiled instruction set."""
    emulated = [program("qemu-x86_64"), "-cpu", processor, wheel_installed.python]
    assert json.loads(run(*emulated, "-c", LIVE)) == expected
    if expected[0] == "native":
        # The other tests of that file run on this machine at every available level.
        assert " passed" in run(*emulated, *SEARCH, "-k", "entries_of_one_node or threads_and_batches")


def test_all_of_it_compiles_for_aarch64(tmp_path):
    for name in ("cmake", "aarch64-linux-gnu-g++"):
        program(name)
    pytest.importorskip("nanobind", reason="nanobind is not installed (make installs it)")
    python = [f"-DPython_EXECUTABLE={sys.executable}", f"-DPython_INCLUDE_DIR={sysconfig.get_path('include')}"]
    toolchain = f"-DCMAKE_TOOLCHAIN_FILE={ROOT / 'native' / 'aarch64.cmake'}"
    run("cmake", "-S", ROOT / "native", "-B", tmp_path, toolchain, *python)
    run("cmake", "--build", tmp_path, "--parallel", "2")
    (module,) = tmp_path.glob("_native*.so")
    assert module.read_bytes()[ELF_MACHINE] == OF_AARCH64


def test_it_answers_on_aarch64():
    if not AARCH64.exists():
        pytest.skip("no aarch64 Python here; `make aarch64` makes one")
    assert json.loads(run(AARCH64, "-c", LIVE)) == ["native", "generic"]
    assert " passed" in run(AARCH64, *SEARCH)
    # Where the compiler may fuse products and sums, they are to be those of numpy.
    assert " passed" in run(AARCH64, *PYTEST, "tests/kernels/test_rows.py", "tests/kernels/test_steering.py")
