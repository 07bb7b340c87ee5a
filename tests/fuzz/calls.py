"""The public functions with valid arguments, some of which a case replaces by invalid ones."""

import contextlib
from pathlib import Path

import numpy as np
import polars as pl

import beamwood
from beamwood.data import ColumnNames, Dataset, Vocabulary, describe_log, read_log
from beamwood.errors import InputError
from beamwood.types import ItemLists
from damaged_folders import Folder
from fuzz.values import JUNK, drawn, junk

__all__ = ["ACCEPTED", "calls", "case", "every_case"]

ACCEPTED = (InputError,)
KINDS = ("tree", "neighbours", "sasrec", "din")


def planted():
    rows = [(f"u{u}", f"i{(u * 7 + p * p) % 12:02d}", 1_700_000_000 + u + 9 * p) for u in range(12) for p in range(6)]
    return pl.DataFrame(rows, schema=["user", "item", "time"], orient="row")


def calls(folder):
    """Callables and their arguments by name, including those of each kind of retriever."""
    frame = planted()
    items = pl.DataFrame({"item": sorted(frame["item"].unique()), "category": "odd", "price": 1.5})
    log = read_log(frame)
    data = Dataset.from_log(log, items)
    split = beamwood.splits.leave_one_out(data)
    fitted = beamwood.fit(split, "cooccurrence")
    reading = {"columns": ColumnNames(), "min_weight": None, "missing": "drop", "time_format": None}
    made = {
        "read_log": (read_log, {"source": frame, "drop_duplicates": True, **reading}),
        "describe_log": (describe_log, {"source": frame, "items": items, "item_column": None, **reading}),
        "ColumnNames": (
            lambda **given: read_log(frame, columns=ColumnNames(**given)),
            {"user": "user", "time": "time"},
        ),
        "Dataset.from_log": (
            Dataset.from_log,
            {"log": log, "items": items, "item_column": "item", "unlisted": "keep", "keep_columns": ("price",)},
        ),
        "splits.disjoint_users": (beamwood.splits.disjoint_users, {"dataset": data, "seed": 1, "history_length": 3}),
        "splits.leave_one_out": (beamwood.splits.leave_one_out, {"dataset": data, "seed": 1}),
        "splits.by_time": (beamwood.splits.by_time, {"dataset": data, "valid_share": 0.3, "test_share": 0.3}),
        "splits.by_session": (
            beamwood.splits.by_session,
            {"dataset": data, "history_length": 3, "valid_share": 0.3, "test_share": 0.3},
        ),
        "splits.by_boundary": (beamwood.splits.by_boundary, {"dataset": data, "valid_share": 0.3}),
        "fit": (in_time, {"split": split, "method": "popularity", "config": None, "preset": None, "seed": 1}),
        "fit.settings": (
            lambda **given: beamwood.fit(split, "cooccurrence", given),
            {name: row["default"] for name, row in beamwood.settings("cooccurrence").items()},
        ),
        "evaluate": (beamwood.evaluate, {"retriever": fitted, "split": split, "ks": (3,)}),
        "refit": (beamwood.refit, {"fitted": fitted, "split": split, "method": None, "start": None, "time_limit": 9.0}),
        "compare": (
            beamwood.compare,
            {"split": split, "methods": ["popularity", "transitions"], "ks": (3,), "seed": 1, "tail": None},
        ),
        "settings": (beamwood.settings, {"method": "dtr"}),
        "Vocabulary": (Vocabulary, {"ids": pl.Series(["a", "b"])}),
        "Vocabulary.encode": (Vocabulary(pl.Series(["a", "b"])).encode, {"ids": ["a"], "on_unknown": "ignore"}),
        "Vocabulary.parse_all": (Vocabulary(pl.Series([1, 2])).parse_all, {"texts": ["1"], "on_unknown": "ignore"}),
        "ItemLists": (ItemLists, {"indptr": np.array([0, 1]), "items": np.array([3], np.int32)}),
    }
    for kind in KINDS:
        path = Path(folder) / kind
        Folder(kind, path)
        made |= {f"{kind}.{name}": call for name, call in answers(beamwood.load(path), path).items()}
    return made


def answers(retriever, path):
    """The methods of a retriever."""
    asked = {
        **{"histories": [["i01", "i02"], []], "k": 3, "users": None, "allowed": {"category": "odd"}, "where": None},
        **{"context": None, "seen": "remove", "on_unknown": "ignore", "exclude": ["i03"], "max_per_category": 2},
        **{"diversity": 0.5, "promote": (), "effort": None, "beam_width": None},
    }
    return {
        "recommend": (retriever.recommend, asked),
        "similar": (retriever.similar, {"items": ["i01"], "k": 3, "by": "model", "allowed": None, "where": None}),
        "score": (retriever.score, {"histories": [["i01"]], "items": [["i02", "i03"]], "users": None}),
        "with_items": (retriever.with_items, {"items": []}),
        "without_items": (retriever.without_items, {"items": ["i04"]}),
        "save": (lambda **given: saved(retriever, path.parent, given), {"path": path, "overwrite": True}),
        "load": (beamwood.load, {"path": path, "method": None, "threads": 1, "verify": True}),
    }


def in_time(split, method, config, preset, seed):
    """A fit that is short even without a method."""
    options = {} if seed is None else {"seed": seed}
    if method is None:
        options |= {"time_limit": 0.5, "progress": False}
    return beamwood.fit(split, method, config, preset=preset, **options)


def saved(retriever, folder, given):
    """Save inside a folder, so that a random name stays within it."""
    with contextlib.chdir(folder):
        retriever.save(**given)


def case(made, seed, number):
    """One call with one to three replaced arguments: its text, the callable, and the arguments."""
    chance = drawn("call", seed, number)
    name = chance.choice(sorted(made))
    called, right = made[name]
    given = dict(right)
    for argument in chance.sample(sorted(given), min(len(given), chance.choice((1, 1, 1, 2, 3)))):
        given[argument] = junk(chance)
    wrong = {key: value for key, value in given.items() if value is not right[key]}
    return f"{name}({', '.join(f'{key}={shown(value)}' for key, value in wrong.items())})", called, given


def shown(value):
    return ascii(value)[:80]


def every_case(made):
    """Calls with every argument of every function replaced by every value, one at a time."""
    for name, (called, right) in made.items():
        for argument in right:
            for value in JUNK:
                yield f"{name}({argument}={shown(value)})", called, right | {argument: value}
