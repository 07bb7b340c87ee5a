"""A custom encoder in one file passes the contract, trains, is saved, loads with its record, and answers."""

import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

import beamwood
from beamwood.data import Vocabulary
from beamwood.errors import ArtefactError
from beamwood.losses.softmax import catalogue_softmax
from beamwood.models.encoders import ENCODERS
from beamwood.models.sequence import SequenceModel
from beamwood.retrieval.retriever import Retriever
from beamwood.retrieval.searchers.vectors import searcher_with, sequence_searcher
from beamwood.testing import EncoderContract
from beamwood.types import ItemLists, Query

FILE = Path(__file__).parent.parent / "one_file" / "fading_mean.py"
NUM_ITEMS = 30


def from_file():
    spec = spec_from_file_location("fading_mean", FILE)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ENCODER


ENCODER = from_file()


class TestRunningMean(EncoderContract):
    encoder = ENCODER


def test_the_package_does_not_refer_to_it():
    source = Path(beamwood.__file__).parent
    assert not any("fading-mean" in path.read_text() for path in source.rglob("*.py"))
    assert ENCODER.name not in ENCODERS


def trained():
    """A model of a log in which item n + 1 follows item n."""
    generator = torch.Generator().manual_seed(0)
    model = SequenceModel(ENCODER, NUM_ITEMS, width=12, length=6, sizes=ENCODER.sizes(hidden=40), generator=generator)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(250):
        first = torch.randint(NUM_ITEMS, (32, 1), generator=generator)
        walks = (first + torch.arange(7)) % NUM_ITEMS
        queries = model(walks[:, :-1])
        loss = catalogue_softmax(queries.flatten(0, 1), model.output_weight, walks[:, 1:].flatten()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def test_it_trains_answers_and_loads_with_its_record(tmp_path):
    searcher = sequence_searcher(trained().plain())
    query = Query.of(ItemLists.from_lists([[3, 4, 5], [28, 29], [10]]))
    found = searcher.search(query, 3)
    assert found.items[:, 0].tolist() == [6, 0, 11]
    Retriever(searcher=searcher, items=Vocabulary(pl.Series(range(NUM_ITEMS)))).save(tmp_path / "model")
    with pytest.raises(ArtefactError, match="encoder 'fading-mean' is unknown"):
        beamwood.load(tmp_path / "model")
    config, arrays = searcher.export()
    again = searcher_with(encoders=[ENCODER]).restore(config, arrays)
    assert np.array_equal(again.search(query, 3).scores, found.scores)


def test_an_encoder_file_loads_without_torch():
    program = (
        "import sys, runpy\n"
        f"encoder = runpy.run_path({str(FILE)!r})['ENCODER']\n"
        "import beamwood.models.encoders, beamwood.models.scorers, beamwood.models.plain_encoder\n"
        "assert 'torch' not in sys.modules, 'torch was imported'\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
