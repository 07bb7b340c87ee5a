"""MELT and CITIES: rare items get vectors from their contexts, others keep theirs, and saving keeps answers."""

import json
import math

import numpy as np
import polars as pl
import pytest
import torch

import beamwood
from beamwood.cli.main import main
from beamwood.data import Dataset, leave_one_out, read_log
from beamwood.data.markets.synthetic import MarketConfig, make_market
from beamwood.errors import InputError
from beamwood.fitting.vectors.cities import CitiesTask
from beamwood.fitting.vectors.item_contexts import Occurrences, encoded_histories
from beamwood.fitting.vectors.melt import MeltTask, curriculum
from beamwood.methods import load_method
from beamwood.training.trainable import Progress
from beamwood.types import ItemLists, Query
from prepared import Prepared
from resumed import whole_as_in_parts

SMALL = {"model.width": 8, "model.length": 10}
SIZES = {
    "sasrec": {"model.num_blocks": 1, "model.num_heads": 2},
    "gru4rec": {"model.hidden": 6},
    "caser": {},
}
LOOP = {"loop.max_steps": 6, "loop.evaluate_every": 3, "choose.validation_users": 20}


@pytest.fixture(scope="module")
def market(tmp_path_factory):
    folder = tmp_path_factory.mktemp("market")
    planted = make_market(MarketConfig(num_users=250, num_items=120, min_events=5, max_events=14), seed=1)
    planted.log.write_parquet(folder / "log.parquet")
    return folder


@pytest.fixture(scope="module")
def split(market):
    return leave_one_out(Dataset.from_log(read_log(market / "log.parquet")))


@pytest.fixture(scope="module", params=["sasrec", "gru4rec", "caser"])
def start(split, market, request):
    module = load_method(request.param)
    module.fitted(split, module.Config(**SMALL, **SIZES[request.param], **LOOP), progress=False).save(
        market / request.param
    )
    return market / request.param


def config_of(name, start, **changes):
    sizes = {"melt": {"loop.batch_size": 8}, "cities": {"loop.batch_size": 8, "examples.reach": 4}}[name]
    return load_method(name).Config(**({"start.folder": str(start)} | LOOP | sizes | changes))


@pytest.mark.parametrize("name", ["melt", "cities"])
def test_only_vectors_of_rare_items_change(split, start, name):
    module = load_method(name)
    fitted = module.fitted(split, config_of(name, start), progress=False)
    before = beamwood.load(start).searcher.first.vectors
    after = fitted.searcher.first.vectors
    counts = split.train.item_counts
    rare = counts <= (np.quantile(counts, 0.78) if name == "melt" else 5)
    moved = (after != before).any(axis=1)
    contexts = Occurrences.of(split.train.histories, len(counts), after_others=name == "melt").counts
    assert np.array_equal(moved, rare & (contexts > 0))
    assert 0 < moved.sum() < len(counts)


@pytest.mark.parametrize("name", ["melt", "cities"])
def test_a_resumed_run_equals_an_uninterrupted_one(split, start, tmp_path, name):
    module = load_method(name)
    config = config_of(name, start, **{"optimiser.decay_steps": 6})
    whole_as_in_parts(module, split, config, tmp_path)


@pytest.mark.parametrize("name", ["melt", "cities"])
def test_from_the_command_line(market, start, tmp_path, capsys, name):
    out = tmp_path / "out"
    settings = [f"--set={key}={value}" for key, value in (LOOP | {"loop.batch_size": 8}).items()]
    arguments = ["fit", str(market / "log.parquet"), "--split", "leave-one-out", "--method", name, "--out", str(out)]
    assert main([*arguments, "--from", str(start), *settings]) == 0
    assert main(["recommend", str(out), "--user", "3", "-k", "4", "--json"]) == 0
    capsys.readouterr()
    assert main(["evaluate", str(out), "--k", "5", "--tail", "0.3", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["method"] == name
    assert 0 <= document["tail"]["views"]["kept"]["metrics"]["hit_rate@5"] <= 1
    assert main([*arguments[:-1], str(tmp_path / "none")]) == 2
    assert f"{name} needs a fitted model; give its folder with --from" in capsys.readouterr().err


def test_melt_uses_the_contexts(split, start):
    """If the branch is the identity, a rare item's vector is the mean vector of its preceding histories."""
    task = Prepared(MeltTask(split, config_of("melt", start)), seed=0)
    with torch.no_grad():
        task.model["item"].weight.copy_(torch.eye(8))
        task.model["item"].bias.zero_()
    searcher = task.searcher()
    histories, encoder = split.train.histories, beamwood.load(start).searcher.first
    for item in task.tail[:5]:
        before = [h[:i] for h in histories for i in range(1, len(h)) if h[i] == item]
        mean = encoder.encode(Query.of(ItemLists.from_lists(before))).mean(axis=0)
        assert np.allclose(searcher.vectors[item], mean, atol=1e-5)
    assert (
        searcher.queries.branch.longest == task.shortest < 10
    )  # A user whose history fills the encoder's length is not rare.
    longer = ItemLists.from_lists([np.arange(task.shortest + 1), np.arange(task.shortest)])
    same = (searcher.encode(Query.of(longer)) == searcher.queries.encoder.encode(longer.padded(10))).all(axis=1)
    assert same.tolist() == [True, False]


def test_cities_keeps_the_user_branch_of_melt(split, start, tmp_path):
    """Vectors of short histories are enhanced as in MELT."""
    melt, cities = load_method("melt"), load_method("cities")
    before = melt.fitted(split, config_of("melt", start), progress=False)
    before.save(tmp_path / "melt")
    after = cities.fitted(split, config_of("cities", tmp_path / "melt"), progress=False)
    ours, theirs = after.searcher.first.queries.branch, before.searcher.first.queries.branch
    assert ours.longest == theirs.longest
    assert np.array_equal(ours.weight, theirs.weight)
    assert np.array_equal(ours.bias, theirs.bias)


def test_melt_without_rare_items_keeps_their_vectors(market, tmp_path):
    ids = pl.DataFrame({"item_id": np.arange(1000)})
    split = leave_one_out(Dataset.from_log(read_log(market / "log.parquet"), ids))
    assert np.quantile(split.train.item_counts, 0.78) == 0
    sasrec = load_method("sasrec")
    before = sasrec.fitted(split, sasrec.Config(**SMALL, **SIZES["sasrec"], **LOOP), progress=False)
    before.save(tmp_path / "start")
    fitted = load_method("melt").fitted(split, config_of("melt", tmp_path / "start"), progress=False)
    assert np.array_equal(fitted.searcher.first.vectors, before.searcher.first.vectors)


def test_melt_learns_a_planted_map(split, start, monkeypatch):
    """If every vector is a linear map of its contexts' mean, the item branch learns the map."""
    task = Prepared(MeltTask(split, config_of("melt", start, **{"loop.batch_size": 32})), seed=0)
    rng = np.random.default_rng(0)
    planted = rng.normal(size=(8, 8)).astype(np.float32)
    context_vectors = rng.normal(size=(len(split.train.items), 8)).astype(np.float32)[
        split.train.histories.items[task.contexts.positions]
    ]
    means = np.zeros((len(split.train.items), 8), np.float32)
    means[split.train.histories.items[task.contexts.positions]] = context_vectors
    task.task.context_vectors = context_vectors
    task.before.encoder.arrays["items.weight"] = means @ planted.T
    optimizer = torch.optim.Adam(task.model.parameters(), lr=0.03)
    for _ in range(400):
        optimizer.zero_grad()
        batch = task.drawn(rng.integers(0, task.num_examples, 32), Progress(step=3))
        task.loss(batch).mean().backward()
        optimizer.step()
    assert np.allclose(task.model["item"].weight.detach().numpy(), planted, atol=0.05)


def test_the_curriculum_goes_from_frequent_to_less_frequent():
    weights = curriculum(np.array([6, 20, 105]), 5, 105, 0.0)
    assert weights[0] == 0
    assert weights[2] == 1
    assert np.all(np.diff(weights) > 0)
    assert np.all(np.diff(curriculum(np.array([6, 20, 105]), 5, 105, 1.0)) < 0)
    # |sin(pi/2 epoch/last + pi/2 (n - t - 1)/(n_max - t - 1))|
    for n, fraction in ((6, 0.25), (20, 0.5), (105, 0.75)):
        place = (n - 5 - 1) / (105 - 5 - 1)
        expected = abs(math.sin(math.pi / 2 * fraction + math.pi / 2 * place))
        assert curriculum(np.array([n]), 5, 105, fraction)[0] == pytest.approx(expected, abs=1e-6)
    # One frequency above the threshold: no division by zero.
    assert np.isfinite(curriculum(np.array([6, 6]), 5, 6, 0.3)).all()


def test_the_item_branch_sees_up_to_as_many_contexts_as_a_rare_item_has(split, start):
    """Of each frequent item 1..threshold random contexts, whose mean is the input; its own vector is wanted."""
    task = Prepared(MeltTask(split, config_of("melt", start)), seed=0)
    histories, encoder, drawn = split.train.histories, beamwood.load(start).searcher.first, []
    contexts, draw = task.contexts, type(task.contexts).draw

    class Watched(type(contexts)):
        def draw(self, items_B, most_B, generator):
            drawn.append((items_B, most_B, draw(self, items_B, most_B, generator)))
            return drawn[-1][2]

    task.task.contexts = Watched(contexts.histories, contexts.indptr, contexts.positions)
    given, wanted, _ = (part.numpy() for part in task.batch(np.arange(20)).items)
    ((items, most, (rows, places)),) = drawn
    assert 1 <= most.min() <= task.rarest / 2 <= most.max() <= task.rarest
    assert np.array_equal(wanted, encoder.vectors[items])
    for row, item in enumerate(items):
        at = contexts.positions[places[rows == row]]
        assert len(set(at.tolist())) == min(most[row], contexts.counts[item])
        assert (histories.items[at] == item).all()
        users = histories.rows[at]
        before = [histories.items[histories.indptr[user] : stop] for user, stop in zip(users, at, strict=True)]
        mean = encoder.encode(Query.of(ItemLists.from_lists(before))).mean(axis=0)
        np.testing.assert_allclose(given[row], mean, atol=1e-5)


def test_the_user_branch_learns_whole_histories_from_their_latest_items(split, start):
    """Of frequent users the latest 1..threshold items are given, and the vector of all is wanted."""
    task = Prepared(MeltTask(split, config_of("melt", start)), seed=0)
    given, wanted, weights = (part.numpy() for part in task.batch(np.arange(20)).users)
    histories, encoder = split.train.histories, beamwood.load(start).searcher.first
    frequent = [h for h in histories if len(h) > task.shortest]

    def encoded(lists):
        return encoder.encode(Query.of(ItemLists.from_lists(lists)))

    whole, lengths = encoded(frequent), set()
    for short, full, weight in zip(given, wanted, weights, strict=True):
        (user,) = np.flatnonzero(np.abs(whole - full).max(axis=1) < 1e-5)[:1]
        latest = encoded([frequent[user][-num:] for num in range(1, task.shortest + 1)])
        apart = np.abs(latest - short).max(axis=1)
        lengths.add(int(apart.argmin()) + 1)
        assert apart.min() < 1e-5
        place = (len(frequent[user]) - task.shortest - 1) / (histories.lengths.max() - task.shortest - 1)
        assert weight == pytest.approx(abs(math.sin(math.pi / 2 * place)), abs=1e-5)
    assert len(lengths) > 1


def test_cities_tells_rare_items_from_frequent_ones(split, start):
    """Learned from items with more than `rare` interactions; inferred for those with fewer, but any."""
    task = Prepared(CitiesTask(split, config_of("cities", start, **{"examples.rare": 7})), seed=0)
    counts = np.bincount(split.train.histories.items, minlength=split.train.num_items)
    assert (counts == 7).any()
    assert np.array_equal(task.head, np.flatnonzero(counts > 7))
    assert np.array_equal(task.tail, np.flatnonzero((counts > 0) & (counts <= 7)))


def test_cities_sees_the_surrounding_items_but_not_the_item(split, start):
    task = Prepared(CitiesTask(split, config_of("cities", start)), seed=0)
    items = task.tail[:6]
    batch = task.context_batch(items, np.full(6, 3), torch.Generator().manual_seed(0))
    histories = [h.tolist() for h in split.train.histories]
    for row, context in zip(batch.rows.tolist(), batch.contexts_PW.tolist(), strict=True):
        assert context[4] == items[row]
        left, right = ([i for i in part if i >= 0] for part in (context[:4], context[5:]))
        assert any(
            h[max(0, p - 4) : p] == left and h[p + 1 : p + 5] == right
            for h in histories
            for p in range(len(h))
            if h[p] == items[row]
        )
    task.model.eval()
    with torch.no_grad():
        given = task.model(batch.rows, batch.contexts_PW, 6)
        hidden = batch.contexts_PW.clone()
        hidden[:, 4] = 0
        assert torch.equal(given, task.model(batch.rows, hidden, 6))
        # Each alone is as in the batch.
        for row in range(6):
            mine = batch.rows == row
            alone = task.model(torch.zeros(int(mine.sum()), dtype=torch.long), batch.contexts_PW[mine], 1)
            assert torch.allclose(alone[0], given[row], atol=1e-5)


def test_samples_have_the_item_and_no_repeats():
    rng = np.random.default_rng(0)
    histories = ItemLists.from_lists([rng.integers(0, 9, rng.integers(1, 12)) for _ in range(30)])
    for after in (False, True):
        where = Occurrences.of(histories, 9, after_others=after)
        assert where.counts.sum() == len(histories.items) - after * len(histories)
        items, most = np.array([3, 0, 3, 8]), np.array([2, 100, 1, 4])
        rows, places = where.draw(items, most, torch.Generator().manual_seed(0))
        assert (histories.items[where.positions[places]] == items[rows]).all()
        assert np.array_equal(np.bincount(rows, minlength=4), np.minimum(most, where.counts[items]))
        assert all(len(set(places[rows == row])) == (rows == row).sum() for row in range(4))
        assert np.array_equal(where.thinned(2, torch.Generator().manual_seed(0)).counts, np.minimum(where.counts, 2))


def test_encoded_windows_equal_their_histories(split, start):
    searcher = beamwood.load(start).searcher.first
    indptr = split.train.histories.indptr
    vectors = encoded_histories(searcher.queries.encoder, split.train.histories, indptr[:-1], indptr[1:])
    assert np.allclose(vectors, searcher.encode(Query.of(split.train.histories)), atol=1e-5)


@pytest.mark.parametrize("name", ["melt", "cities"])
def test_untied_vectors_are_refused(split, tmp_path, name):
    sasrec, module = load_method("sasrec"), load_method(name)
    sasrec.fitted(
        split, sasrec.Config(**SMALL, **SIZES["sasrec"], **LOOP, **{"model.tied": False}), progress=False
    ).save(tmp_path / "untied")
    with pytest.raises(InputError, match=r"model\.tied=false; fit it with true"):
        module.fitted(split, config_of(name, tmp_path / "untied"), progress=False)
