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


def test_what_holds_arrays_is_compared_by_identity():
    """Comparing arrays would raise, also in a set, as a key, or as an argument of a cached function."""
    rows = [{"user": row % 9, "item": row % 7} for row in range(90)]
    logs = [beamwood.read_log(rows) for _ in range(2)]
    datasets = [beamwood.Dataset.from_log(log) for log in logs]
    splits = [beamwood.splits.leave_one_out(dataset) for dataset in datasets]
    retrievers = [beamwood.fit(split, "popularity") for split in splits]
    for one, other in (logs, datasets, splits, retrievers):
        assert {one: 1, other: 2}[one] == 1
        assert [other, one].index(one) == 1
