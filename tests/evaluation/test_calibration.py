"""Calibration of predicted probabilities, and the display of users."""

import numpy as np
import polars as pl
import pytest

from beamwood.data import Dataset, disjoint_users, read_log
from beamwood.errors import InputError
from beamwood.evaluation import probabilities as module
from beamwood.evaluation.calibration import calibrate
from beamwood.evaluation.examples import titles, users_shown
from beamwood.methods import load_method
from beamwood.types import ItemLists, Query

RNG = np.random.default_rng(2)


class Known:
    """Scores whose softmax has the given probabilities, multiplied by `heat`."""

    kind = "known"

    def __init__(self, likely_QN, heat=1.0):
        self.likely_QN, self.heat, self.num_items = likely_QN, heat, likely_QN.shape[1]

    def score(self, query, items_BM):
        return (self.heat * np.log(self.likely_QN[query.users[:, None], items_BM])).astype(np.float32)


def asked(likely_QN):
    """A label for each query, drawn by its probabilities."""
    labels = [[RNG.choice(likely_QN.shape[1], p=row)] for row in likely_QN]
    query = Query(np.arange(len(likely_QN)), ItemLists.empty(len(likely_QN)))
    return query, ItemLists.from_lists(labels)


def test_true_probabilities_are_calibrated_and_scaled_ones_are_not(monkeypatch):
    monkeypatch.setattr(module, "_BLOCK_CELLS", 700)
    likely = RNG.dirichlet(np.full(40, 0.15), 6000)
    likely = np.maximum(likely, 1e-5)
    likely /= likely.sum(axis=1, keepdims=True)
    query, labels = asked(likely)
    true, heated = (calibrate(Known(likely, heat), query, labels) for heat in (1.0, 3.0))
    assert true.error < 0.02 < 0.1 < heated.error
    for each in (true, heated):
        assert sum(part.pairs for part in each.ranges) == 6000 * 40
        assert sum(part.pairs * part.predicted for part in each.ranges) == pytest.approx(6000, rel=1e-4)
        assert sum(part.pairs * part.observed for part in each.ranges) == pytest.approx(6000)
        assert all(part.low <= part.predicted <= part.high * (1 + 1e-6) for part in each.ranges)
    for part in true.ranges:
        if part.pairs * part.predicted > 200:
            assert part.observed == pytest.approx(part.predicted, rel=0.2)


def test_several_labels_share_one_target():
    likely = np.array([[0.7, 0.12, 0.18]])
    query = Query(np.zeros(1, np.int64), ItemLists.empty(1))
    measured = calibrate(Known(likely), query, ItemLists.from_lists([[0, 2]]))
    assert [part.observed for part in measured.ranges] == pytest.approx([0.25, 0.5])


def test_queries_without_labels_are_refused():
    likely = np.array([[0.7, 0.12, 0.18], [0.2, 0.3, 0.5]])
    query = Query(np.zeros(2, np.int64), ItemLists.empty(2))
    for some, labels in ((query, [[0], []]), (query, [[0]]), (query.take([]), [])):
        with pytest.raises(InputError, match="rows of labels; give one non-empty row a query"):
            calibrate(Known(likely), some, ItemLists.from_lists(labels))


@pytest.fixture(scope="module")
def frame():
    rows = np.arange(600)
    return pl.DataFrame({"user_id": rows % 30, "item_id": (rows * rows // 7) % 23, "timestamp": rows})


def test_titles_are_used_if_there_are_any(frame):
    plain = Dataset.from_log(read_log(frame))
    assert titles(plain).to_list() == [str(item) for item in plain.items.ids]
    table = pl.DataFrame({"item_id": range(23), "Title": ["", None, *(f"film {n}" for n in range(2, 23))]})
    named = titles(Dataset.from_log(read_log(frame), table)).to_list()
    assert named[:3] == ["0", "1", "film 2"]
    other = Dataset.from_log(read_log(frame), table.rename({"Title": "colour"}))
    assert titles(other).to_list()[2] == "2"


def test_users_are_shown_unchanged(frame):
    split = disjoint_users(Dataset.from_log(read_log(frame)))
    searcher = load_method("popularity").fitted(split).searcher
    shown = users_shown(searcher, split, 4, most=2)
    assert len(shown) == 2
    row = split.test.users.tolist().index(int(shown[0].user))
    assert shown[0].history[0] == str(split.dataset.items.ids[int(split.test.histories[row][-1])])
    labels = {str(split.dataset.items.ids[int(item)]) for item in split.test.labels[row]}
    assert [each.hit for each in shown[0].shown] == [each.title in labels for each in shown[0].shown]
    assert {each.title for each in shown[0].labels} == labels
    assert not {each.title for each in shown[0].shown} & set(shown[0].history)
