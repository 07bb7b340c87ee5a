"""Charts are legible: labels of a scatter plot do not overlap, even for close points."""

from itertools import combinations

import numpy as np
import pytest

from beamwood.evaluation.verdict import judge
from beamwood.report.compare import by_group, spoken_of
from chromium import rows_of

charts = pytest.importorskip("beamwood.report.charts", reason="pages need the extra plots")
NAMES = ["popularity", "cooccurrence", "transitions", "ease", "two_tower", "sasrec", "dtr", "dtr+cooccurrence"]
LINE, LETTER, WIDTH, HEIGHT = 15, 6.8, 230, 280


def labels(rows, specification):
    """The start, the end and the height of each label, in pixels of a narrow page."""
    scales = specification["layer"][0]["encoding"]
    across, up = np.log(scales["x"]["scale"]["domain"]), scales["y"]["scale"]["domain"]
    for row in rows:
        at = (np.log(row["x"]) - across[0]) / (across[1] - across[0]) * WIDTH
        long = LETTER * len(row["name"])
        left = at if row["side"] == "left" else at - long
        yield left, left + long, (row["label"] - up[0]) / (up[1] - up[0]) * HEIGHT


@pytest.mark.parametrize("seed", range(5))
def test_labels_do_not_overlap(seed):
    rng = np.random.default_rng(seed)
    rows = [
        {"name": name, "x": 10 ** rng.uniform(-1, 1), "y": rng.choice([0.14, 0.141, 0.09]), "tone": "other"}
        for name in NAMES
    ]
    drawn = charts.scatter(rows, "milliseconds", "f@20")
    placed = rows_of(drawn)
    assert {row["name"]: row["y"] for row in placed} == {row["name"]: row["y"] for row in rows}
    assert all(row["label"] <= row["y"] for row in placed)
    for one, other in combinations(labels(placed, drawn), 2):
        apart = one[0] >= other[1] or other[0] >= one[1] or abs(one[2] - other[2]) >= LINE * 0.999
        assert apart, (one, other)
    # Labels are on the scale of the marks.
    assert all(
        layer["encoding"]["y"]["scale"] == drawn["layer"][0]["encoding"]["y"]["scale"] for layer in drawn["layer"]
    )


@pytest.mark.parametrize(("counts", "spoken"), [(0.0, {"tree", "towers", "ease", "counts"}), (0.5, {"counts", "tree"})])
def test_charts_of_groups_have_the_methods_of_the_verdict(counts, spoken):
    """The next, the first rival that is not certainly below, and the simplest; the next may be level."""
    values = {
        "tree": np.full(40, 0.5),
        "towers": 0.48 + np.resize([0.001, -0.001], 40),
        "ease": 0.47 + np.resize([0.3, -0.3], 40),
        "counts": np.full(40, counts),
    }
    verdict = judge(values, "removed", "f@20", "counts")
    means = {name: {"removed": {"metrics": {"f@20": float(each.mean())}}} for name, each in values.items()}
    found = spoken_of({"verdict": {"removed": verdict.as_dict()}, "methods": means}, "removed")
    assert set(found) == spoken
    words = verdict.as_dict()["words"]
    assert all(name in words for name in found)
    assert all(name in found for name in values if name in words)


def test_each_group_has_its_own_point_and_a_true_name():
    """Popularity above ten thousand is named in thousands, where two groups would not share a name."""
    mean = {"mean": 0.1, "low": 0.0, "high": 0.2}
    for highs, names in (
        ((40, 9_999, 12_100, 13_500), ["≤40", "≤9,999", "≤13k", "≤14k"]),
        ((40, 12_100, 12_400), ["≤40", "≤12,100", "≤12,400"]),
    ):
        part = {"metric": "recall@20", "groups": [{"low": 0, "high": high} for high in highs]}
        drawn = by_group(part, "interactions", {"dtr": [mean] * len(highs)})
        assert [row["group"] for row in rows_of(drawn)] == names
