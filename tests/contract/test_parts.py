"""The contracts of terms, losses, samplers and scores, for built-in and custom ones."""

import runpy
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

from beamwood.losses.levels import LEVEL_LOSSES
from beamwood.models.scorers import SCORERS
from beamwood.models.terms.neighbours import Neighbours
from beamwood.models.terms.seen import Seen
from beamwood.models.terms.similarity import Similarity
from beamwood.sampling.in_batch import make_sampler
from beamwood.sampling.levels import (
    BeamCandidates,
    DistinctNegatives,
    Siblings,
    TreeNegativesByLevel,
    UniformByLevel,
)
from beamwood.testing import (
    InBatchSamplerContract,
    LevelLossContract,
    LevelSamplerContract,
    PairScoreContract,
    TermContract,
)
from beamwood.tree import Shape

FILES = Path(__file__).parent.parent / "one_file"


class TestSeen(TermContract):
    term = Seen()


class TestSimilarity(TermContract):
    term = Similarity(5)


class TestNeighbours(TermContract):
    term = Neighbours(3)

    def filled(self, arrays):
        """With three different neighbours of each leaf, and shares that a move leaves as they are."""
        rng, shape, filled = np.random.default_rng(0), Shape(3, 4, 3), dict(super().filled(arrays))
        filled["leaves"] = filled["leaves"].copy()
        filled["leaves"][-shape.capacity :] = [
            rng.choice(shape.capacity, 3, replace=False) for _ in range(shape.capacity)
        ]
        filled["chances"] = filled["chances"] * (filled["leaves"] >= 0)
        self.term.move(filled, np.arange(shape.capacity), shape)
        return filled


class TestTrend(TermContract):
    term = runpy.run_path(str(FILES / "trend_term.py"))["Trend"]()


class Fixed(Similarity):
    """It leaves its vectors where they are."""

    def move(self, held, place, shape):
        pass


def test_a_term_that_moves_nothing_breaks_the_contract():
    contract = type("Broken", (TermContract,), {"term": Fixed(5)})()
    with pytest.raises(AssertionError, match="nothing was moved"):
        contract.test_a_move_is_undone_by_its_reverse()


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


COUNTS = np.arange(30)


class TestSsl(InBatchSamplerContract):
    sampler = make_sampler("ssl", COUNTS, batch_size=12)


class TestSslPop(InBatchSamplerContract):
    sampler = make_sampler("ssl-pop", COUNTS, batch_size=12)


class TestMns(InBatchSamplerContract):
    sampler = make_sampler("mns", COUNTS, batch_size=12)


class TestGTower(InBatchSamplerContract):
    sampler = make_sampler("g-tower", COUNTS, batch_size=12)


class TestBir(InBatchSamplerContract):
    sampler = make_sampler("bir", COUNTS, batch_size=12)


class TestWeightedBir(InBatchSamplerContract):
    sampler = make_sampler("bir", COUNTS, batch_size=12, form="weighted")


class TestCorrectedBir(InBatchSamplerContract):
    sampler = make_sampler("bir", COUNTS, batch_size=12, form="corrected")


class TestXir(InBatchSamplerContract):
    sampler = make_sampler("xir", COUNTS, batch_size=12)


class TestXirOfAllSteps(InBatchSamplerContract):
    sampler = make_sampler("xir", COUNTS, batch_size=12, cache_counts="all")


class TestHardest(InBatchSamplerContract):
    sampler = runpy.run_path(str(FILES / "hardest_negatives.py"))["Hardest"](5)


class TestGraphRec(PairScoreContract):
    score = SCORERS["graphrec"]


class TestNeuMf(PairScoreContract):
    score = SCORERS["neumf"]
    sizes = MappingProxyType({"factors": 4, "layers": (6, 3)})


class TestDin(PairScoreContract):
    score = SCORERS["din"]
    sizes = MappingProxyType({"attention": (5, 4), "mlp": (8, 3)})


class TestAttended(PairScoreContract):
    score = runpy.run_path(str(FILES / "attended_product.py"))["SCORE"]
