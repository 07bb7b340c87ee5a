"""Charts of a page: what is drawn stands where its value is."""

import re

import numpy as np
import pytest

from beamwood.evaluation.page import calibration_chart, line_chart


def dots(figure):
    return np.array(re.findall(r"<circle cx='([\d.]+)' cy='([\d.]+)'", figure), float)


def test_a_single_point_is_drawn():
    figure = line_chart("heap violations", [(1.0, 0.25)], across="level")
    assert len(dots(figure)) == 1
    assert "0.25" in figure
    assert "<polyline" in line_chart("heap violations", [(1.0, 0.25), (2.0, 0.5)], across="level")


def test_a_calibrated_point_is_on_the_diagonal_and_an_overestimate_below_it():
    figure = calibration_chart("level 1", [(0.002, 0.002), (0.05, 0.05), (0.7, 0.7), (0.5, 0.05), (0.3, 0.0)])
    corners = np.array(re.findall(r"([\d.]+),([\d.]+)", re.search(r"points='(.*?)'", figure)[1]), float)
    across = (dots(figure)[:, 0] - corners[0, 0]) / (corners[1, 0] - corners[0, 0])
    up = (dots(figure)[:, 1] - corners[0, 1]) / (corners[1, 1] - corners[0, 1])
    assert np.allclose(across, 1 + np.log10([0.002, 0.05, 0.7, 0.5, 0.3]) / 3, atol=1e-3)
    assert np.allclose(across[:3], up[:3], atol=1e-3)
    assert up[3] < across[3] - 0.3
    assert up[4] == 0


@pytest.mark.parametrize("points", [[(0.0, 0.0)], [(1.0, 1.0)]])
def test_extreme_predictions_stay_within_the_axes(points):
    ((x, y),) = dots(calibration_chart("level 1", points))
    assert (x, y) in {(60.0, 184.0), (232.0, 12.0)}
