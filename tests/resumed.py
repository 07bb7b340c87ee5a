"""A training that is interrupted and resumed."""

import numpy as np

from beamwood.training.run_folder import RunFolder


def assert_same_arrays(one, other):
    """Assert that two retrievers have the same arrays, bit for bit."""
    ours, theirs = one.searcher.export()[1], other.searcher.export()[1]
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        np.testing.assert_array_equal(array, theirs[name], err_msg=name)


def whole_as_in_parts(method, split, config, folder, *, steps=3):
    """The retriever of a configuration, after asserting that a run resumed at this step gives the same one."""
    whole = method.fitted(split, config, run=RunFolder(folder / "whole"), progress=False)
    first = config.changed({"loop.max_steps": steps})
    method.fitted(split, first, run=RunFolder(folder / "parts"), progress=False)
    resumed = method.fitted(split, config, run=RunFolder(folder / "parts"), resume=True, progress=False)
    assert_same_arrays(whole, resumed)
    return whole
