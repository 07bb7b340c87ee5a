"""The sequence encoders: their contract, and their searchers."""

import numpy as np
import pytest
import torch

from beamwood.errors import ArtefactError, InputError
from beamwood.models.encoders import ENCODERS, caser, fmlp, gru4rec, sasrec, youtube_dnn
from beamwood.models.plain_encoder import PlainEncoder
from beamwood.models.sequence import SequenceModel
from beamwood.retrieval.load import restore_searcher
from beamwood.retrieval.searchers.queries import UserBranch
from beamwood.retrieval.searchers.vectors import sequence_searcher
from beamwood.testing import EncoderContract
from beamwood.types import ItemLists, Query


class TestSasRec(EncoderContract):
    encoder = sasrec.ENCODER
    sizes = {"num_blocks": 3, "num_heads": 3}  # noqa: RUF012
    # A softmax is invariant to a constant common to all keys.
    silent = ("key.bias",)


class TestGru4Rec(EncoderContract):
    encoder = gru4rec.ENCODER
    sizes = {"hidden": 11}  # noqa: RUF012

    def test_a_recurrence_has_no_positions(self):
        # SASRec's count from the window's end.
        model, items = self.built(), torch.from_numpy(self.histories(1))[-1:]
        with torch.no_grad():
            vectors = model(items)
            for stop in range(1, self.length + 1):
                if items[0, stop - 1] >= 0:
                    assert torch.allclose(vectors[0, stop - 1], model(items[:, :stop])[0, -1], atol=1e-6)


class TestCaser(EncoderContract):
    encoder = caser.ENCODER
    sizes = {"num_vertical": 3, "num_horizontal": 5}  # noqa: RUF012


class TestFmlp(EncoderContract):
    encoder = fmlp.ENCODER


class TestFmlpOfAnEvenLength(TestFmlp):
    length = 10


class TestYoutubeDnn(EncoderContract):
    encoder = youtube_dnn.ENCODER
    sizes = {"layers": (11, 6)}  # noqa: RUF012
    ordered = False

    def test_layers_that_change_nothing_give_the_mean(self):
        model = self.built(tied=False)
        plain, items = model.plain(), self.histories(3)
        arrays = {name: array for name, array in plain.arrays.items() if not name.startswith("layers.")}
        arrays |= {"output.weight": np.eye(self.width), "output.bias": np.zeros(self.width)}
        alone = PlainEncoder(self.encoder, arrays, {"layers": ()}, length=self.length)
        vectors = alone.encode(items)
        for row, history in enumerate(items):
            own = history[history >= 0]
            mean = arrays["items.weight"][own].mean(axis=0) if len(own) else np.zeros(self.width)
            np.testing.assert_allclose(vectors[row], mean, atol=1e-6)

    def test_a_users_vector_may_have_any_direction(self):
        # After a ReLU, no column could be negative.
        vectors = self.built().plain().encode(self.histories(1))
        assert (vectors < -1e-3).any()
        assert (vectors > 1e-3).any()


LENGTH, NUM_ITEMS = 9, 40


def built(name, **options):
    generator = torch.Generator().manual_seed(0)
    model = SequenceModel(ENCODERS[name], NUM_ITEMS, width=12, length=LENGTH, **options, generator=generator)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


@pytest.mark.parametrize("name", ["sasrec", "gru4rec", "youtube_dnn"])
def test_rows_of_different_lengths_are_encoded_as_if_together(name, monkeypatch):
    generator, lengths = torch.Generator().manual_seed(0), (0, 3, 40, 8, 9, 1, 17, 33)
    model = SequenceModel(ENCODERS[name], NUM_ITEMS, width=12, length=40, generator=generator).eval()
    lists = ItemLists.from_lists([np.arange(size) % NUM_ITEMS for size in lengths])
    items = torch.from_numpy(lists.padded(40).astype(np.int64))
    grouped, widths = model(items), []
    encode = model._encode
    monkeypatch.setattr(model, "_encode", lambda part: widths.append(part.shape[1]) or encode(part))
    model(items)
    assert widths == [8, 16, 32, 40]
    monkeypatch.setattr("beamwood.models.sequence._SHORTEST", 40)
    together, real = model(items), items >= 0
    torch.testing.assert_close(grouped[real], together[real])
    (gradient,) = torch.autograd.grad(grouped[real].square().sum(), model.items.weight)
    (expected,) = torch.autograd.grad(together[real].square().sum(), model.items.weight)
    torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("features", [None, 5])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("name", ENCODERS)
def test_the_searcher_has_the_models_scores_before_and_after_saving(name, tied, features):
    given = None if features is None else np.random.default_rng(3).normal(size=(NUM_ITEMS, features))
    model = built(name, tied=tied, features_NF=given)
    rng = np.random.default_rng(0)
    lists = ItemLists.from_lists([rng.integers(0, NUM_ITEMS, size) for size in (0, 1, LENGTH, LENGTH + 4, 3, 5)])
    query = Query.of(lists)
    searcher = sequence_searcher(model.plain())
    real = lists.lengths > 0
    with torch.no_grad():
        queries = model(torch.from_numpy(lists.padded(LENGTH).astype(np.int64)))[:, -1]
        expected = (queries @ model.output_weight.T).numpy()
    every = np.broadcast_to(np.arange(NUM_ITEMS), expected.shape)
    np.testing.assert_allclose(searcher.score(query, every)[real], expected[real], atol=1e-5)
    config, arrays = searcher.export()
    assert np.array_equal(arrays["vectors"], model.output_weight.detach().numpy())
    again = restore_searcher("vectors", config, arrays)
    assert np.array_equal(again.search(query, 7).items, searcher.search(query, 7).items)


@pytest.mark.parametrize("name", ENCODERS)
def test_only_the_latest_items_count(name):
    lists = ItemLists.from_lists([np.arange(LENGTH + 3), np.arange(3, LENGTH + 3)])
    vectors = sequence_searcher(built(name).plain()).encode(Query.of(lists))
    assert np.allclose(vectors[0], vectors[1], atol=1e-6)


def of_encoder(config, **changes):
    """The configuration of a searcher with other settings of its encoder."""
    queries = config["queries"]
    return config | {"queries": queries | {"config": queries["config"] | changes}}


def test_an_unknown_encoder_is_refused():
    config, arrays = sequence_searcher(built("sasrec").plain()).export()
    with pytest.raises(ArtefactError, match="did you mean 'caser'"):
        restore_searcher("vectors", of_encoder(config, encoder="casr"), arrays)
    with pytest.raises(ArtefactError, match="'positions' is missing"):
        restore_searcher("vectors", config, {name: arrays[name] for name in arrays if name != "query.positions"})


def test_fewer_blocks_than_were_stored_are_refused():
    config, arrays = sequence_searcher(built("sasrec").plain()).export()
    with pytest.raises(ArtefactError, match=r"'blocks\.1\.\S+' is not expected"):
        restore_searcher("vectors", of_encoder(config, sizes={"num_blocks": 1, "num_heads": 2}), arrays)
    with pytest.raises(ArtefactError, match=r"'blocks\.2\.\S+' is missing"):
        restore_searcher("vectors", of_encoder(config, sizes={"num_blocks": 2**30, "num_heads": 2}), arrays)


@pytest.mark.parametrize("name", ENCODERS)
def test_the_user_branch_is_for_short_histories(name):
    plain = sequence_searcher(built(name).plain())
    rng = np.random.default_rng(0)
    branch = UserBranch(rng.normal(size=(12, 12)).astype(np.float32), rng.normal(size=12).astype(np.float32), 2)
    config, arrays = sequence_searcher(plain.queries.encoder, branch).export()
    searcher = restore_searcher("vectors", config, arrays)
    lists = ItemLists.from_lists([[], [1], [2, 3], [4, 5, 6]])
    before, after = plain.encode(Query.of(lists)), searcher.encode(Query.of(lists))
    expected = before[1:3] + before[1:3] @ branch.weight.T + branch.bias
    assert np.allclose(after[1:3], expected, atol=1e-5)
    assert np.array_equal(after[[0, 3]], before[[0, 3]])


def test_wrong_width():
    with pytest.raises(InputError, match="width=10 is not a multiple of num_heads=4"):
        SequenceModel(ENCODERS["sasrec"], 10, width=10, length=5, sizes=sasrec.Sizes(num_heads=4))
