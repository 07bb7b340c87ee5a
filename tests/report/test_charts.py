"""Charts are legible: labels of a scatter plot do not overlap, even for close points."""

from itertools import combinations

import numpy as np
import pytest

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
