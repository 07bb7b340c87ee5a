"""What a model leaves the tail, against the plain definition, and its picture."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from beamwood.errors import InputError
from beamwood.evaluation import gap
from beamwood.evaluation.gap import TailGap, tail_gap
from beamwood.evaluation.page import histogram, page
from beamwood.types import ItemLists


@pytest.mark.parametrize("cells", [1, 20, 2**22])
@pytest.mark.parametrize("logits", [True, False])
def test_the_gap_is_the_difference_of_the_means(monkeypatch, cells, logits):
    monkeypatch.setattr(gap, "_BLOCK_CELLS", cells)
    rng = np.random.default_rng(0)
    table = rng.normal(size=(7, 11)) * 3
    tail = np.arange(11) % 3 == 0
    histories = ItemLists.from_lists([[row] for row in range(7)])

    def score(part, items_BM):
        return np.take_along_axis(table[part.items], items_BM, axis=1).astype(np.float32)

    got = tail_gap(score, histories, tail, logits=logits)
    weights = np.exp(table) if logits else np.maximum(table, 0)
    p = weights / weights.sum(axis=1, keepdims=True)
    assert np.allclose(got.gaps, 11 * (p[:, tail].mean(axis=1) - p.mean(axis=1)), atol=1e-5)
    document = got.as_dict()
    assert sum(document["histogram"]["counts"]) == 7
    assert document["quantiles"]["5%"] <= document["quantiles"]["50%"] <= document["quantiles"]["95%"]


def test_uniform_is_zero_and_nothing_is_minus_one():
    histories = ItemLists.from_lists([[0], [1]])
    tail = np.array([True, False, False, False])
    uniform = tail_gap(lambda h, items: np.ones(items.shape), histories, tail, logits=True)
    assert np.allclose(uniform.gaps, 0)
    none = tail_gap(lambda h, items: np.where(tail[items], -50.0, 1.0), histories, tail, logits=False)
    assert np.allclose(none.gaps, -1)
    # Without any score there is no choice to judge.
    empty = tail_gap(lambda h, items: np.full(items.shape, -1.0), histories, tail, logits=False)
    assert np.allclose(empty.gaps, 0)
    for wrong in (np.zeros(4, bool), np.ones(4, bool)):
        with pytest.raises(InputError, match="of 4 items; choose a share between"):
            tail_gap(lambda h, items: np.ones(items.shape), histories, wrong, logits=True)


def test_the_histogram_is_drawn_inside_its_frame():
    figure = TailGap(np.random.default_rng(0).normal(size=200), "softmax of the scores").figure()
    HTMLParser().feed(page("gap", [figure]))
    assert figure.count("<rect") == 40
    assert "stroke-dasharray" in figure
    for x, width in re.findall(r"<rect x='([-.\d]+)' y='[-.\d]+' width='([-.\d]+)'", figure):
        assert float(x) >= 59
        assert float(x) + float(width) <= 640
    assert "stroke-dasharray" not in histogram("one sided", [1.0, 2.0, 3.0], [4, 0])
    assert not re.search(r"(src|href)=", figure)
