"""A tree's weights for seen items start above 0 in logs with repeats, and are adjusted after training.

Counting methods put seen items first or last.
"""

import re

import numpy as np
import polars as pl
import pytest
from pydantic import ValidationError

from beamwood.data import Dataset, disjoint_users, leave_one_out, read_log
from beamwood.errors import InputError
from beamwood.fitting.blend import SEEN_WEIGHTS
from beamwood.fitting.plan import Facts
from beamwood.fitting.tree import seen_start
from beamwood.methods import cooccurrence, dtr, plt, tdm, transitions
from beamwood.models.terms.step_scale import STEP_SCALE
from beamwood.retrieval.searchers.popularity import PopularitySearcher
from beamwood.training.budget import Budget
from beamwood.types import Query, SearchOptions
from clocks import Clock
from one_view import evaluate_view

SMALL = {
    "model.width": 16,
    "model.windows": (4, 2, 1),
    "model.mlp": (16, 8),
    "model.attention_hidden": 8,
    "loop.max_steps": 2,
    "tree.beam_width": 12,
}
SMALL |= {"tree.branching": 4, "model.similarity_width": 16, "model.num_neighbours": 0, "choose.seen_weight": 0}


def log_of(again):
    """Users have popular items more often, each once; `again`: the last one is a repeat."""
    rng, rows = np.random.default_rng(0), []
    share = 1 / np.arange(1, 301) / (1 / np.arange(1, 301)).sum()
    for user in range(300):
        new, had = list(rng.choice(300, 14, replace=False, p=share)), []
        for _ in range(14):
            had.append(int(rng.choice(had)) if had and rng.random() < again else int(new.pop()))
        rows += [(user, each, time) for time, each in enumerate(had)]
    return read_log(pl.DataFrame(rows, schema=["user", "item", "time"], orient="row"))


@pytest.fixture(scope="module", params=[0.0, 0.8], ids=["never", "often"])
def case(request):
    return request.param, disjoint_users(Dataset.from_log(log_of(request.param)))


def seen(retriever):
    """The weights of the positions that have an item."""
    return retriever.searcher.weights.terms["seen"].arrays["weights"]


def left_in(retriever, queries):
    return evaluate_view(retriever.searcher, queries, ks=(20,), remove_seen=False).means()["f@20"]


@pytest.mark.parametrize("method", [dtr, tdm])
def test_the_start_is_better_than_from_zero(case, method):
    again, split = case
    chosen = method.METHOD.fitted(split, method.Config(**SMALL), progress=False)
    if not again:
        assert chosen.metadata["training"]["seen_start"] == 0
        return
    plain = method.METHOD.fitted(split, method.Config(**SMALL, **{"start.seen": 0}), progress=False)
    assert chosen.metadata["training"]["seen_start"] > 0
    assert plain.metadata["training"]["seen_start"] == 0
    assert left_in(chosen, split.valid) > left_in(plain, split.valid) + 0.01
    assert left_in(chosen, split.test) > left_in(plain, split.test)


def test_a_given_start_is_used(case):
    _, split = case
    config = dtr.Config(**SMALL | {"optimiser.learning_rate": 1e-12, "start.seen": -2.5})
    assert np.allclose(seen(dtr.METHOD.fitted(split, config, progress=False)), -2.5, atol=STEP_SCALE * 1e-6)


def test_a_random_scorer_has_no_start(case):
    _, split = case
    config = dtr.Config(**SMALL | {"model.similarity_width": 0, "tree.start": "random", "start.scores": "random"})
    retriever = dtr.METHOD.fitted(split, config, progress=False)
    assert retriever.metadata["training"]["seen_start"] == 0
    assert not retriever.searcher.weights.terms


def without_a_start(method, split, **changes):
    config = method.Config(
        **SMALL | {"optimiser.learning_rate": 1e-12, "tree.beam_width": 300} | changes, **{"start.seen": 0}
    )
    return method.METHOD.fitted(split, config, progress=False)


@pytest.mark.parametrize("method", [dtr, tdm])
def test_after_training_they_get_the_best_addition_on_validation(case, method):
    again, split = case
    values = {
        weight: left_in(without_a_start(method, split, **{"choose.seen_weight": weight}), split.valid)
        for weight in SEEN_WEIGHTS
    }
    chosen = without_a_start(method, split, **{"choose.seen_weight": None})
    kept = chosen.metadata["training"]["seen_weight"]
    assert (kept > 0) if again else (kept < 0)
    assert values[kept] == max(values.values()) > values[0.0]
    assert np.allclose(seen(chosen), kept, atol=STEP_SCALE * 1e-5)
    others = [
        each.searcher.search(Query.of(split.test.histories), 9, SearchOptions(split.test.histories))
        for each in (chosen, without_a_start(method, split, **{"choose.seen_weight": 0}))
    ]
    assert np.array_equal(others[0].items, others[1].items)


def test_path_scores_have_only_a_given_weight(case):
    _, split = case
    assert without_a_start(plt, split, **{"choose.seen_weight": None}).metadata["training"]["seen_weight"] == 0
    given = without_a_start(plt, split, **{"choose.seen_weight": -3})
    assert np.allclose(seen(given), -3, atol=STEP_SCALE * 1e-5)


@pytest.mark.parametrize("name", ["start.seen", "choose.seen_weight"])
@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"start.scores": "random", "model.similarity_width": None},
            r"=8\.0 belongs to .* leave it out, or set start.scores",
        ),
        ({"model.similarity_width": 0}, r"=8\.0 is a part of the similarity; leave out model.similarity_width=0"),
    ],
)
def test_a_weight_without_its_similarity_is_refused(changes, says, name):
    with pytest.raises(ValidationError, match=re.escape(name) + says):
        dtr.Config(**SMALL | changes | {name: 8})


@pytest.mark.parametrize("name", ["start.seen", "choose.seen_weight"])
def test_large_catalogues_with_random_scores_have_no_weights_of_repeats(name):
    with pytest.raises(InputError, match=re.escape(name) + r"=8\.0 .* of 3,000,000 items start from on request alone"):
        dtr.Config(**{name: 8}).plan(Facts(num_users=9, num_items=3_000_000))


@pytest.mark.parametrize("method", [cooccurrence, transitions])
def test_counting_chooses_the_position_of_seen_items(case, method):
    again, split = case
    chosen = method.METHOD.fitted(split)
    plain = method.METHOD.fitted(split, method.Config(**{"model.seen": ("counted",)}))
    assert chosen.searcher.seen == chosen.metadata["training"]["seen"] == ("first" if again else "last")
    assert plain.searcher.seen == "counted"
    assert left_in(chosen, split.test) > left_in(plain, split.test)
    others = [
        each.searcher.search(Query.of(split.test.histories), 9, SearchOptions(split.test.histories))
        for each in (chosen, plain)
    ]
    assert np.array_equal(others[0].items, others[1].items)


def test_under_a_limit_a_random_part_of_the_users_judges(monkeypatch):
    """Not those with the lowest ids, which may have come first."""
    split, asked = leave_one_out(Dataset.from_log(log_of(0.0))), []

    class Watched(PopularitySearcher):
        def search(self, query, *given):
            asked.append(query.users)
            return super().search(query, *given)

    searcher = Watched(split.train.item_counts)
    monkeypatch.setattr(seen_start, "estimated_seconds", lambda *_: 200.0)
    for seed in (0, 1):
        budget = Budget(1000, clock=Clock())
        seen_start.best_seen_start(
            lambda weight: None, lambda: searcher, split.valid, "kept/f@20", seed=seed, budget=budget
        )
        assert len(asked[-1]) == 37
        assert abs(asked[-1].mean() - split.valid.users.mean()) < 60
    assert not np.array_equal(asked[0], asked[-1])
