"""The boundary of the native core: sizes, arrays that change during a call, signals, and interpreter shutdown."""

import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from beamwood.errors import ArtefactError, InputError
from beamwood.kernels import native
from beamwood.kernels.arrays import values_unread
from beamwood.kernels.search import DinSearch
from cli_cases import ENVIRONMENT
from din_cases import random_case, random_light, random_weights

TESTS = Path(__file__).parents[1]
WITH_TESTS = ENVIRONMENT | {"PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])}
core = native()
native_only = pytest.mark.skipif(core is None, reason="the native core was not built")
bounded = pytest.mark.skipif(
    "BEAMWOOD_SANITIZED" in os.environ, reason="a sanitizer reserves more addresses than the limit allows"
)


def unaligned(array):
    """A copy at an unaligned address."""
    copy = np.frombuffer(bytearray(array.nbytes + 1), array.dtype, array.size, 1).reshape(array.shape)
    copy[...] = array
    return copy


def searcher(weights, shape, windows=None):
    layers = [weights.attention_in, weights.attention_out, *weights.layers]
    arrays = [(layer.weight, layer.bias, layer.slope) for layer in layers]
    windows = weights.windows if windows is None else windows
    return core.Searcher(
        weights.nodes, arrays, windows, shape, core.levels()[-1], "float32", False, 0, None, None, None, 1
    )


def long_case(num_rows):
    """A search that takes some milliseconds per row, and the rows."""
    tree, weights, histories = random_case(3, num_items=3000, num_rows=num_rows, width=24, hidden=36)
    return tree, weights, histories, {"beam_width": 150, "k": 10, "live": tree.live_counts}


def once_begun(search, work):
    """A thread that runs `work` after a search has started its first rows."""

    def wait():
        while search.queue.asked < 3:
            time.sleep(0.001)
        work()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


@native_only
def test_a_tree_whose_size_exceeds_64_bits_is_refused():
    weights = random_weights(np.random.default_rng(0), 4)
    for shape in [(4, 2**62, 2), (4, 2**61, 2), (2**62, 2, 3), (4, 2**63 - 1, 2)]:
        with pytest.raises(ValueError, match="the tree is too large"):
            searcher(weights, shape)


@native_only
@bounded
def test_windows_are_checked_before_memory_is_allocated():
    tree, weights, _ = random_case(3)
    shape = tree.shape.root_fanout, tree.shape.branching, tree.shape.depth
    code = (
        "import numpy as np, resource, kernels.test_border as border\n"
        "tree, weights, _ = border.random_case(3)\n"
        "shape = tree.shape.root_fanout, tree.shape.branching, tree.shape.depth\n"
        "resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))\n"
        "border.searcher(weights, shape, np.full(16000, (1 << 20) - 1))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=WITH_TESTS, check=False)
    assert "ValueError: windows" in done.stderr
    with pytest.raises(ValueError, match="windows"):
        searcher(weights, shape, np.array([2**63 - 1]))


@native_only
def test_unaligned_arrays_are_refused_by_the_core_and_copied_before_it():
    tree, weights, histories = random_case(3)
    asked = {"beam_width": 10, "k": 5, "live": tree.live_counts}
    search = DinSearch(weights, tree.shape)
    lists = np.zeros(len(histories) + 1, np.int64), np.empty(0, np.int32)
    with pytest.raises(TypeError):
        search._core.beam(unaligned(histories), 10, 5, tree.live_counts, *lists)
    found = search.beam(unaligned(histories), **asked)
    assert np.array_equal(found.leaves, search.beam(histories, **asked).leaves)
    counts = tuple(map(unaligned, tree.live_counts))
    assert np.array_equal(search.beam(histories, **asked | {"live": counts}).leaves, found.leaves)
    with pytest.raises(ArtefactError, match=r"nodes is unaligned"):
        dataclasses.replace(weights, nodes=unaligned(weights.nodes))


@native_only
@pytest.mark.parametrize("k", [2**31 + 1, 2**63, 2**70])
def test_a_k_above_the_cores_limit_names_the_bound(k):
    tree, weights, histories = random_case(3)
    search = DinSearch(weights, tree.shape)
    with pytest.raises(InputError, match=f"k={k} is above 2147483648"):
        search.beam(histories, beam_width=k, k=k, live=tree.live_counts)
    with pytest.raises(InputError, match=f"k={k} is above 2147483648"):
        search.exact(histories, k, live=tree.live_counts)


@pytest.mark.parametrize("most", range(2, 18))
@pytest.mark.parametrize("kernels", ["native", "reference"])
def test_the_last_offset_below_1_stays_within_the_level(most, kernels, monkeypatch):
    if core is None and kernels == "native":
        pytest.skip("the native core was not built")
    monkeypatch.setenv("BEAMWOOD_KERNELS", kernels)
    tree, weights, histories = random_case(3, num_items=200)
    offsets = np.full(len(histories), np.nextafter(1, 0))
    search = DinSearch(weights, tree.shape)
    seen = search.visit(
        histories, beam_width=200, steered=False, most=most, offsets=offsets, live=tree.live_counts
    ).nodes
    for level in range(1, tree.shape.depth + 1):
        open_nodes = np.flatnonzero(tree.live_counts[level])
        for nodes in seen[:, level - 1]:
            found = nodes[nodes >= 0]
            assert np.isin(found, open_nodes).all()
            assert len(np.unique(found)) == len(found) == min(most, len(open_nodes))


@pytest.mark.parametrize("kernels", ["native", "reference"])
def test_scores_of_a_steered_search_are_finite(kernels, monkeypatch):
    if core is None and kernels == "native":
        pytest.skip("the native core was not built")
    monkeypatch.setenv("BEAMWOOD_KERNELS", kernels)
    tree, weights, histories = random_case(3)
    light = random_light(np.random.default_rng(1), len(weights.nodes), weights.history_length, width=16)
    with values_unread():
        damaged = dataclasses.replace(weights, nodes=np.full_like(weights.nodes, np.nan), light=light)
    with pytest.raises(ArtefactError, match="a score is NaN or infinite"):
        DinSearch(damaged, tree.shape).visit(
            histories, beam_width=8, steered=True, most=4, offsets=np.zeros(len(histories)), live=tree.live_counts
        )


@native_only
def test_writes_to_the_rows_during_a_search_have_no_effect():
    tree, weights, histories, asked = long_case(600)
    expected, search = DinSearch(weights, tree.shape).beam(histories, **asked), DinSearch(weights, tree.shape)
    lists = np.zeros(len(histories) + 1, np.int64), np.empty(0, np.int32)

    def overwrite():
        histories[:] = -1
        lists[0][1:-1] = -1

    thread = once_begun(search, overwrite)
    found = search.beam(histories, **asked, excluded=lists)
    thread.join()
    assert (histories == -1).all()
    assert np.array_equal(found.leaves, expected.leaves)


@native_only
@pytest.mark.parametrize("threads", [1, 2])
def test_a_signal_ends_a_batch(threads):
    tree, weights, histories, asked = long_case(20000)
    search = DinSearch(weights, tree.shape, threads=threads)

    class Told(Exception):
        pass

    def told(*_):
        raise Told

    before = signal.signal(signal.SIGUSR1, told)
    try:
        thread = once_begun(search, lambda: os.kill(os.getpid(), signal.SIGUSR1))
        with pytest.raises(Told):
            search.beam(histories, **asked)
        thread.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert search.queue.asked < len(histories)
    assert search.beam(histories[:2], **asked).leaves.min() >= 0


@native_only
def test_daemon_threads_in_a_search_do_not_abort_interpreter_shutdown():
    code = (
        "import threading, time, sys, kernels.test_border as border\n"
        "tree, weights, histories, asked = border.long_case(8)\n"
        "search = border.DinSearch(weights, tree.shape)\n"
        "def loop():\n"
        "    while True: search.beam(histories, **asked)\n"
        "for _ in range(2): threading.Thread(target=loop, daemon=True).start()\n"
        "while search.queue.asked < 8: time.sleep(.01)\n"
        "class Slow:\n"
        "    def __del__(self, sleep=time.sleep):\n"
        "        for _ in range(30): sleep(.01)\n"
        "sys.kept = Slow()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=WITH_TESTS, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@native_only
@bounded
def test_more_threads_than_rows_need_no_memory():
    code = (
        "import numpy as np, resource\n"
        "from beamwood.kernels import native\n"
        "resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))\n"
        "floats, masked = np.zeros((4, 30), np.float32), np.zeros((4, 30), bool)\n"
        "most, counts = 2**31 - 1, np.empty_like(floats)\n"
        "native().resample_systematic(floats, floats[0], masked, np.zeros(4, np.float32), 5, counts, most)\n"
        "row, drawn = np.zeros(4, np.float32), np.empty(30, np.int64)\n"
        "starts, parts = np.zeros((4, 1), np.float32), [(0, 30, 5, 1.0)]\n"
        "less, losses, own = floats[0].copy(), row.copy(), row.copy()\n"
        "native().drawn_softmax(floats, less, masked, row, starts, parts, losses, own, drawn, most)\n"
        "assert counts.sum(axis=1).tolist() == [5] * 4 and drawn.sum() == 20\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=WITH_TESTS, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@native_only
@pytest.mark.parametrize("start", [-1e30, -0.1, 1.0, np.nan, np.inf])
def test_starts_outside_their_interval_are_refused(start):
    floats, masked = np.zeros((1, 30), np.float32), np.zeros((1, 30), bool)
    row, starts = np.zeros(1, np.float32), np.array([start], np.float32)
    with pytest.raises(ValueError, match=r"starts must lie in \[0, 1\)"):
        core.resample_systematic(floats, floats[0], masked, starts, 5, np.empty_like(floats))
    with pytest.raises(ValueError, match=r"starts must lie in \[0, 1\)"):
        core.drawn_softmax(
            floats, floats[0].copy(), masked, row, starts[:, None], [(0, 30, 5, 1.0)], row, row, np.empty(30, np.int64)
        )


@pytest.mark.parametrize("dtype", [np.int32, np.float64, ">i8"])
def test_windows_of_another_type_are_named(dtype):
    _, weights, _ = random_case(3)
    with pytest.raises(ArtefactError, match="windows is"):
        dataclasses.replace(weights, windows=weights.windows.astype(dtype))
