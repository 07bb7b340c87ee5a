"""The package's own terms and level losses keep their contracts, and so do those of a file of one's own."""

import runpy
from pathlib import Path

import numpy as np

from beamwood.losses.levels import LEVEL_LOSSES
from beamwood.models.terms.seen import Seen
from beamwood.models.terms.similarity import Similarity
from beamwood.sampling.levels import (
    BeamCandidates,
    DistinctNegatives,
    Siblings,
    TreeNegativesByLevel,
    UniformByLevel,
)
from beamwood.testing import LevelLossContract, LevelSamplerContract, TermContract

FILES = Path(__file__).parent.parent / "one_file"


class TestSeen(TermContract):
    term = Seen()


class TestSimilarity(TermContract):
    term = Similarity(5)


class TestTrend(TermContract):
    term = runpy.run_path(str(FILES / "trend_term.py"))["Trend"]()


class TestSoftmax(LevelLossContract):
    loss = LEVEL_LOSSES["softmax"]


class TestBinary(LevelLossContract):
    loss = LEVEL_LOSSES["binary"]


class TestFocal(LevelLossContract):
    loss = runpy.run_path(str(FILES / "focal_loss.py"))["METHOD"].fit.keywords["loss"]


DEPTH = LevelSamplerContract.tree.shape.depth


class TestUniform(LevelSamplerContract):
    sampler = UniformByLevel([6] * DEPTH)


class TestTreeNegatives(LevelSamplerContract):
    sampler = TreeNegativesByLevel(6)


class TestDistinct(LevelSamplerContract):
    sampler = DistinctNegatives([6] * DEPTH)


class TestSiblings(LevelSamplerContract):
    sampler = Siblings()


class TestBeam(LevelSamplerContract):
    sampler = BeamCandidates(4)


class TestPopular(LevelSamplerContract):
    sampler = runpy.run_path(str(FILES / "popular_negatives.py"))["Popular"](np.arange(90) ** 2, 6)
