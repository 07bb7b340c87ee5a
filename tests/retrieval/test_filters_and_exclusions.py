"""Random filters, exclusions and k against brute force.

No forbidden item is returned, there are k items if k are allowed, and they are the best if all allowed are scored.
"""

import datetime as dt
from dataclasses import replace

import numpy as np
import pytest

from beamwood.retrieval.request import Request
from beamwood.types import ItemLists
from retrieval_cases import item_frame, retriever_of, tree_searcher, vector_searcher

DAY = dt.date(2026, 1, 1)


class Case:
    """A retriever, and its items as rows on which filters are evaluated one at a time."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.size, self.width = int(rng.integers(12, 500)), int(rng.integers(2, 40))
        kind = ("beam", "steered", "vectors")[seed % 3]
        if kind == "vectors":
            searcher = vector_searcher(self.size, seed)
        else:
            searcher = tree_searcher(self.size, seed, beam_width=self.width, steered=kind == "steered")
            # If a filter allows at most this many items, all of them are scored.
            self.scored = 2 * (searcher.ways.default.judged or self.width)
        self.retriever = retriever_of(searcher, seed=seed, text=seed % 2 == 0)
        self.items = self.retriever.items.decode(np.arange(self.size))
        self.rows = item_frame(self.size, seed).to_dicts()
        for row in self.rows:
            row["category"] = row["category"].split("|")

    def filter(self, rng):
        """The arguments of a request, and the items they allow, bool[N], evaluated row by row."""
        kind = rng.choice(["none", "where", "where", "where", "category", "ids", "mask", "both"])
        ids = rng.permutation(self.size)[: rng.integers(0, self.size + 1)]
        listed = np.isin(np.arange(self.size), ids)
        where, meets = condition(rng)
        met = np.array([meets(row) for row in self.rows])
        label = f"c{rng.integers(5)}"
        of_label = np.array([label in row["category"] for row in self.rows])
        return {
            "none": ({}, np.ones(self.size, bool)),
            "where": ({"where": where}, met),
            "category": ({"allowed": {"category": label}}, of_label),
            "ids": ({"allowed": [self.items[at] for at in ids]}, listed),
            "mask": ({"allowed": listed}, listed),
            "both": ({"allowed": {"category": label}, "where": where}, of_label & met),
        }[str(kind)]


def condition(rng, depth=0):
    """A condition on the columns of `item_frame`, and the same as a function of a row."""
    kind = rng.choice(["price", "range", "brand", "stock", "since", "category", "missing", "all", "any", "not"])
    low, high = sorted(rng.integers(0, 40, 2).tolist())
    day, names = DAY + dt.timedelta(days=int(rng.integers(0, 300))), [f"brand {n}" for n in rng.permutation(6)[:2]]
    if depth < 2 and kind in ("all", "any"):
        (one, meets_one), (other, meets_other) = condition(rng, depth + 1), condition(rng, depth + 1)
        joined = all if kind == "all" else any
        return {str(kind): [one, other]}, lambda row: joined([meets_one(row), meets_other(row)])
    if depth < 2 and kind == "not":
        one, meets = condition(rng, depth + 1)
        return {"not": one}, lambda row: not meets(row)
    return {
        "range": (
            {"price": {"gte": low, "lt": high}},
            lambda row: row["price"] is not None and low <= row["price"] < high,
        ),
        "brand": ({"brand": names}, lambda row: row["brand"] in names),
        "stock": ({"stock": True}, lambda row: row["stock"]),
        "since": ({"since": {"lte": str(day)}}, lambda row: row["since"] <= day),
        "category": ({"category": "c2"}, lambda row: "c2" in row["category"]),
        "missing": ({"price": {"missing": True}}, lambda row: row["price"] is None),
    }.get(str(kind), ({"price": high}, lambda row: row["price"] == high))


def check(case, rng):
    """Test one random request; return whether all allowed items were scored."""
    asked, allowed = case.filter(rng)
    user, k = int(rng.integers(30)), int(rng.integers(1, case.size + 1))
    seen = str(rng.choice(["remove", "keep"]))
    gone = rng.permutation(case.size)[: rng.integers(0, case.size) if rng.random() < 0.5 else 0]
    retriever, history = case.retriever, case.retriever.histories[user]
    answer = retriever.recommend(users=[user], k=k, seen=seen, exclude=[case.items[at] for at in gone], **asked)
    left = allowed.copy()
    left[gone] = False
    if seen == "remove":
        left[history] = False
    found = retriever.items.encode(answer.item_ids[0])
    about = {"user": user, "k": k, "seen": seen, "without": gone, **asked}
    assert left[found].all(), f"forbidden items are shown: {about}"
    assert len(found) == len(set(found.tolist())) == min(k, int(left.sum())), f"{len(found)} of {k} items: {about}"
    by_tree = case.retriever.searcher.kind == "tree-din"
    if by_tree and (not asked or allowed.sum() > case.scored):
        return False
    among = np.flatnonzero(left)
    scores = retriever.score(None, [[case.items[at] for at in among]], users=[user])[0]
    best = among[np.lexsort((among, -scores))[:k]]
    assert found.tolist() == best.tolist(), f"not the best: {about}"
    assert np.allclose(answer.scores[0], np.sort(scores)[::-1][:k], atol=1e-6)
    return True


def run(seeds, questions):
    whole = 0
    for seed in seeds:
        case, rng = Case(seed), np.random.default_rng(seed)
        whole += sum(check(case, rng) for _ in range(questions))
    # Both cases must occur often enough.
    assert 0.3 < whole / (len(seeds) * questions) < 0.9


def test_some_random_requests():
    run(range(9), 30)


@pytest.mark.slow
def test_ten_thousand_random_requests():
    run(range(100, 200), 100)


def test_seen_and_rejected_items_are_both_left_out():
    retriever = retriever_of(tree_searcher(90, 0))
    rejected = ItemLists.from_lists([[number % 90, (number + 7) % 90] for number in range(len(retriever.users))])
    names = replace(retriever, rejected=rejected).names
    request = Request(users=[11], k=5, seen="remove", rejected="remove")
    row = int(names.users.encode([11])[0])
    _, _, options = names.resolve(request, retriever.searcher.needs)
    assert set(options.excluded[0].tolist()) == {*retriever.histories[row].tolist(), *rejected[row].tolist()}
