"""The words of a table: p-values, and which rows are above, below, and not significantly different from a reference."""

import re
from types import SimpleNamespace

import numpy as np
from benchmarks.evidence import Evidence
from benchmarks.figures import p_value
from benchmarks.verdicts import verdict

BASE = np.random.default_rng(0).random(400)


def row(key, gain, title=None):
    """A row whose users gain this much on the base, give or take."""
    values = BASE + gain + np.random.default_rng([*key.encode()]).normal(0, 0.01, 400)
    line = SimpleNamespace(figures={"removed/f@20": float(values.mean())})
    return Evidence(key, title or f"`{key}`", (line,), {"removed/f@20": values}, ())


def said(rows, against=None):
    return verdict(SimpleNamespace(judged=["removed/f@20"], against=against), {each.row: each for each in rows})


def test_rows_beside_the_one_that_is_named():
    rows = [row("base", 0), row("better", 0.1), row("worse", -0.1), row("same", 0)]
    assert said(rows, "base") == (
        "- By F@20 (seen items removed), above `base`: `better`. Below it: `worse`. "
        "Not significantly different from it: `same`."
    )
    assert said(rows[::2], "base").startswith("- By F@20 (seen items removed), no row is significantly above `base`. ")


def test_rows_beside_the_highest():
    text = said([row("low", -0.2), row("next", 0), row("best", 0.1)])
    assert text.startswith("- By F@20 (seen items removed), `best` has the highest figure. It is above all others: ")
    assert re.search(r"the next of them, `next`, by \.(09|10)\d\d \[\.(09|10)\d\d, \.(09|10)\d\d\], p ", text)
    level = said([row("low", -0.2), row("best", 0.0003), row("same", -0.0003)])
    assert "`best` has the highest figure. Not significantly different from it: `same`." in level
    assert re.search(r"It is above the others: the next of them, `low`, by \.(19|20)\d\d ", level)


def test_a_title_with_a_comma_is_told_from_its_neighbours():
    rows = [row("base", 0), row("a", -0.1, "`two_tower`"), row("b", -0.1, "`two_tower`, `hnsw`")]
    assert "Below it: `two_tower`; `two_tower`, `hnsw`." in said(rows, "base")


def test_p_values_have_two_digits_at_most():
    written = {1: "1", 0.995: "1", 0.994: ".99", 0.1: ".10", 0.0312: ".031", 0.00101: ".001", 2e-9: "2e-9", 0: "0"}
    assert {p: p_value(p) for p in written} == written
