"""TIGER: codes, scores against loops, a full beam against scoring all items, and recovery of planted codes."""

import numpy as np
import polars as pl
import pytest
import torch

import beamwood
from beamwood.errors import ArtefactError, InputError, UnknownSearcherError
from beamwood.fitting.vectors.tiger import TigerTask, item_codes, with_collision_codes
from beamwood.methods import load_method
from beamwood.models import code_decoder
from beamwood.retrieval.load import restore_searcher
from beamwood.retrieval.searchers.coded import CodeSearcher
from beamwood.training.budget import Budget
from beamwood.types import SearchOptions
from following import NUM_ITEMS, far_from_start, followed, gain_over_popularity, queries, without_gradient
from plans import planned
from prepared import Prepared

METHOD = load_method("tiger")
SMALL = {"model.width": 12, "model.length": 6, "model.num_blocks": 1, "model.dropout": 0.0, "model.num_words": 5}
SMALL |= {"choose.validation_users": 50}
SHORT = SMALL | {"loop.max_steps": 6, "loop.evaluate_every": 3, "loop.batch_size": 16}


@pytest.fixture(scope="module")
def split():
    """A log with an item table of texts."""
    text = [[float(n // 20), n % 7 / 7, 1.0] for n in range(NUM_ITEMS)]
    return followed(pl.DataFrame({"item_id": range(NUM_ITEMS), "text": text}))


def task_of(split, **changes):
    """A training task far from its initial values."""
    task = Prepared(TigerTask(split, planned(METHOD.Config(**(SMALL | changes)), split.train)), seed=0)
    return far_from_start(task)


def every(query):
    return np.broadcast_to(np.arange(NUM_ITEMS), (len(query), NUM_ITEMS))


def by_loops(searcher, state, codes):
    """The log-probability of one item's codes given a state, in float64."""
    total, state = 0.0, state.astype(float)
    for place, code in enumerate(codes):
        words, bias = searcher.words[place].astype(float), searcher.weights[f"decoder.{place}.bias"]
        logits = words @ state + bias
        total += logits[code] - np.log(np.exp(logits).sum())
        if place + 1 < len(codes):
            maps = {part: searcher.weights[f"decoder.{place}.{part}"] for part in ("inner.weight", "inner.bias")}
            hidden = np.maximum(maps["inner.weight"] @ np.concatenate([state, words[code]]) + maps["inner.bias"], 0)
            outer = [searcher.weights[f"decoder.{place}.outer.{part}"] for part in ("weight", "bias")]
            state = state + outer[0] @ hidden + outer[1]
    return total


def test_scores_equal_their_definition(split):
    searcher, query = task_of(split).searcher(), queries()
    states, items = searcher.encode(query), np.array([[3, 59, 0, -1, 17, 3]] * 12)
    got = searcher.score(query, items)
    for row, column in np.ndindex(got.shape):
        if items[row, column] < 0:
            assert got[row, column] == -np.inf
        else:
            expected = by_loops(searcher, states[row], searcher.prefixes.codes[items[row, column]])
            assert got[row, column] == pytest.approx(expected, abs=1e-3)
    np.testing.assert_allclose(searcher.score(query, every(query))[:, [3, 59]], got[:, :2], atol=1e-4)


def test_a_checkpoint_holds_each_array_once(split):
    state = task_of(split).model.state_dict()
    assert len({tensor.data_ptr() for tensor in state.values()}) == len(state)


def test_the_loss_equals_the_scores_of_answers(split):
    task = task_of(split)
    searcher, query = task.searcher(), queries()
    padded = torch.from_numpy(query.histories.padded(6).astype(np.int64))
    targets = torch.arange(12)
    with torch.no_grad():
        losses = task.task.cross_entropy(task.model(padded)[:, -1], targets, task.rng)
    np.testing.assert_allclose(-losses.numpy(), searcher.score(query, targets.numpy()[:, None])[:, 0], atol=1e-3)


def test_a_full_beam_finds_the_best(split):
    """A narrow beam finds at most as much. Ids, order and scores are compared, with filters."""
    query = queries(40)
    excluded, allowed = query.histories.distinct(), np.arange(NUM_ITEMS) % 3 > 0
    for options in (SearchOptions(), SearchOptions(excluded), SearchOptions(excluded, allowed)):
        for beam in (1, 12, NUM_ITEMS):
            searcher = task_of(split, **{"model.beam_width": beam}).searcher()
            hits = searcher.search(query, 10, options)
            assert (hits.items >= 0).all()
            np.testing.assert_allclose(hits.scores, searcher.score(query, hits.items), atol=1e-4)
        scores = searcher.score(query, every(query))
        if options.excluded is not None:
            scores[excluded.rows, excluded.items] = -np.inf
        if options.allowed is not None:
            scores[:, ~allowed] = -np.inf
        assert np.array_equal(hits.items, np.argsort(-scores, axis=1, kind="stable")[:, :10])


def test_only_prefixes_of_items_are_searched(split):
    searcher, query = task_of(split, **{"model.beam_width": NUM_ITEMS}).searcher(), queries(3)
    nodes = sum(len(words) for words in searcher.prefixes.words)
    assert (searcher.search(query, 5).scored == nodes).all()
    allowed = np.zeros(NUM_ITEMS, bool)
    allowed[[3, 17]] = True
    hits = searcher.search(query, 5, SearchOptions(allowed=allowed))
    assert (hits.scored <= 2 * searcher.prefixes.num_places).all()
    assert (np.sort(hits.items, axis=1)[:, -2:] == [3, 17]).all()
    assert (hits.items[:, 2:] == -1).all()


def test_a_row_equals_that_in_a_batch(split, monkeypatch):
    searcher, query = task_of(split, **{"model.beam_width": 4}).searcher(), queries()
    whole = searcher.search(query, 3)
    monkeypatch.setattr("beamwood.retrieval.searchers.coded._BLOCK_CELLS", 1)
    alone = searcher.search(query, 3)
    assert np.array_equal(alone.items, whole.items)
    np.testing.assert_allclose(alone.scores, whole.scores, atol=1e-5)


def test_planted_codes_are_recovered():
    """Vectors are sums of distant centres; items with the same centres share codes except the last one."""
    rng = np.random.default_rng(0)
    far, near = 100 * np.eye(4, 6), np.eye(6)[4:] * 5
    wanted = np.array([(n % 4, n // 4 % 2) for n in range(24)])
    vectors = (far[wanted[:, 0]] + near[wanted[:, 1]]).astype(np.float32)
    codes, centres = item_codes(vectors, 24, 2, 4, rng)
    assert codes.shape == (24, 3)
    for n in range(24):
        for m in range(24):
            assert (codes[n, :2] == codes[m, :2]).all() == (wanted[n] == wanted[m]).all()
    assert len({tuple(row) for row in codes.tolist()}) == 24
    assert sorted(codes[:, 2].tolist()) == sorted([0, 1, 2] * 8)
    np.testing.assert_allclose(centres[0][codes[:, 0]] + centres[1][codes[:, 1]], vectors, atol=1e-3)
    assert np.array_equal(with_collision_codes(np.array([[1], [0]])), [[1], [0]])


def test_codewords_start_at_the_centres_of_their_codes(split):
    """Where they are as wide; then an item's vector is its quantised one, of about unit length."""
    config = planned(METHOD.Config(**SMALL), split.train)
    task = Prepared(TigerTask(split, config), seed=0)
    vectors = task.task._vectors(0, Budget())
    codes, centres = item_codes(vectors, NUM_ITEMS, 3, 5, np.random.default_rng(0))
    assert np.array_equal(task.model.coded.codes.numpy(), codes)
    for place in range(3):
        table = task.model.coded.tables[place].detach().numpy()
        np.testing.assert_allclose(table, centres[place][: len(table)], atol=1e-6)
    assert np.square(vectors).sum(axis=1).mean() == pytest.approx(1, rel=1e-5)


def test_random_codes_as_a_control():
    codes, centres = item_codes(None, 3000, 2, 4, np.random.default_rng(0))
    assert centres is None
    counts = np.bincount(codes[:, 0] * 4 + codes[:, 1], minlength=16)
    assert abs(((counts - 187.5) ** 2 / 187.5).sum() - 15) < 5 * np.sqrt(30)


def test_sources_of_vectors(split, tmp_path):
    load_method("sasrec").fitted(
        split, {"model.width": 8, "model.length": 6, "loop.max_steps": 2}, progress=False
    ).save(tmp_path / "start")
    for given in ({"start.item_column": "text"}, {"start.folder": str(tmp_path / "start")}, {"start.codes": "random"}):
        fitted = METHOD.fitted(split, SHORT | given, progress=False)
        codes = fitted.searcher.first.prefixes.codes
        assert len({tuple(row) for row in codes.tolist()}) == NUM_ITEMS
        if "start.item_column" in given:
            text = {tuple(each) for each in split.train.item_table.vectors("text").round(4).tolist()}
            assert len({tuple(row) for row in codes[:, :3].tolist()}) <= len(text)
    with pytest.raises(InputError, match="'txt'"):
        METHOD.fitted(split, SHORT | {"start.item_column": "txt"}, progress=False)
    load_method("popularity").fitted(split).save(tmp_path / "popular")
    with pytest.raises(InputError, match="has no item vectors"):
        METHOD.fitted(split, SHORT | {"start.folder": str(tmp_path / "popular")}, progress=False)


def test_every_parameter_learns(split):
    task = task_of(split)
    assert without_gradient(task) == []


def test_it_learns_successors(split):
    given = SMALL | {"loop.max_steps": 200, "loop.evaluate_every": 100}
    assert gain_over_popularity(METHOD, split, given) > 0.2


def test_a_saved_model_gives_equal_answers_and_a_damaged_one_is_refused(split, tmp_path):
    fitted = METHOD.fitted(split, SHORT, progress=False)
    fitted.save(tmp_path / "saved")
    loaded = beamwood.load(tmp_path / "saved")
    asked = {"histories": [[1, 2, 3], [5]], "k": 5, "allowed": list(range(0, NUM_ITEMS, 2))}
    assert loaded.recommend(**asked) == fitted.recommend(**asked)
    config, arrays = fitted.searcher.first.export()
    assert isinstance(restore_searcher("codes", config, arrays), CodeSearcher)
    for name in arrays:
        with pytest.raises((ArtefactError, KeyError)):
            restore_searcher("codes", config, {other: each for other, each in arrays.items() if other != name})
    wrong = arrays["codes"].copy()
    wrong[3] += 900
    with pytest.raises(ArtefactError, match="codes go up to"):
        restore_searcher("codes", config, arrays | {"codes": wrong})
    with pytest.raises(ArtefactError, match="codes are int64; expected int32"):
        restore_searcher("codes", config, arrays | {"codes": arrays["codes"].astype(np.int64)})
    with pytest.raises(UnknownSearcherError, match="encoder 'sasrek' is unknown"):
        restore_searcher("codes", config | {"encoder": "sasrek"}, arrays)


def test_the_decoder_declares_what_it_uses():
    names = {each.name for each in code_decoder.parameters(4, [5, 3])}
    assert names == {
        "decoder.0.bias",
        "decoder.1.bias",
        *(f"decoder.0.{m}.{p}" for m in ("inner", "outer") for p in ("weight", "bias")),
    }
