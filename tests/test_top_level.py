"""The public names of `import beamwood`, and the examples in its docstring."""

import doctest
import pydoc
import subprocess
import sys

import pytest

import beamwood
import beamwood.testing


def test_the_examples_run():
    failures, tried = doctest.testmod(beamwood)
    assert failures == 0
    assert tried > 8


def test_all_public_names_exist():
    for name in beamwood.__all__:
        assert vars(beamwood).get(name) or beamwood.__getattr__(name)
    with pytest.raises(AttributeError, match="no attribute 'recommend'; it has: Dataset"):
        beamwood.recommend  # noqa: B018


def test_completion_and_help_show_the_public_names():
    """They include names that are imported lazily, and no names that the module only uses."""
    assert sorted(dir(beamwood)) == sorted(beamwood.__all__)
    page = pydoc.render_doc(beamwood, renderer=pydoc.plaintext)
    assert "class Dataset" in page
    assert "compare(split" in page
    assert "ks: 'Sequence[int]'" in page
    assert sorted(dir(beamwood.testing)) == sorted(beamwood.testing.__all__)


def test_imports_are_lazy():
    program = "import sys, beamwood; assert 'numpy' not in sys.modules and 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
