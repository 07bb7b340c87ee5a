"""Display in notebooks: small tables of results, ids as plain text, and progress as plain lines."""

import builtins
import warnings
from html.parser import HTMLParser

import polars as pl
import pytest

import beamwood
from beamwood.data import describe_log
from beamwood.notebook import facts, table, text
from beamwood.retrieval.request import Recommendations
from beamwood.training.progress import TrainingProgress

BAD = "<script>alert('&\"')</script>"


class Page(HTMLParser):
    """Collects the tags and the text of HTML, and checks that every tag is closed."""

    def __init__(self, html):
        super().__init__()
        self.open, self.tags, self.cells = [], set(), []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.tags.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.cells.append(data)


@pytest.fixture(scope="module")
def rows():
    named = [f"{BAD} {item}" for item in range(12)]
    return [(f"user {user}", named[(user * step) % 12], step) for user in range(30) for step in range(1, 7)]


@pytest.fixture(scope="module")
def log(rows):
    return beamwood.read_log(pl.DataFrame(rows, ["user_id", "item_id", BAD.replace("'", "")], orient="row"))


@pytest.fixture(scope="module")
def fitted(log):
    split = beamwood.splits.leave_one_out(beamwood.Dataset.from_log(log))
    return split, beamwood.fit(split, "cooccurrence")


def shown(value):
    page = Page(value._repr_html_())
    assert page.tags <= {"table", "caption", "thead", "tbody", "tfoot", "tr", "th", "td", "pre"}
    return page


def test_public_objects_have_a_display(log, fitted):
    split, retriever = fitted
    assert any("180 rows" in cell for cell in shown(log).cells)
    assert {"users", "30", "items", "12", "180"} <= set(shown(split.dataset).cells)
    assert {"split leave-one-out", split.rule} <= set(shown(split).cells)
    assert shown(retriever).cells == ["retriever by cooccurrence", "items", "12", "users", "30"]


def test_recommendations_are_shown_as_a_table_with_ids_as_text(rows, fitted):
    _, retriever = fitted
    found = retriever.recommend([[rows[0][1]], [rows[1][1]]], k=3)
    cells = shown(found).cells
    assert cells[:4] == ["row", "rank", "item", "score"]
    assert [cell for cell in cells if cell.startswith("<script>")] == [item for row in found.item_ids for item in row]
    assert f"{found.scores[0][0]:.4f}" in cells
    nothing = retriever.recommend([retriever.items.ids.to_list()], k=3)
    assert any(cell.startswith("row 0 has no items, as ") for cell in shown(nothing).cells)


def test_figures_are_shown_by_view_and_by_method(fitted):
    split, retriever = fitted
    views = beamwood.evaluate(retriever, split, ks=(3,))
    cells = shown(views).cells
    assert cells[:3] == ["mean of test users", "seen items kept", "seen items removed"]
    assert cells[cells.index("f@3") + 2] == f"{views['removed'].means()['f@3']:.4f}"
    assert shown(views["kept"]).cells[1] == "seen items kept"
    assert list(views) == ["kept", "removed"]
    compared = beamwood.compare(split, ["popularity", "ease"], ks=(3,), progress=False)
    cells = shown(compared).cells
    assert cells[:2] == ["method", "f@3 kept"]
    assert {"popularity", "ease", compared.conclusion} <= set(cells)


def test_a_terminal_shows_a_few_lines(log, fitted):
    """It does not show their arrays."""
    split, retriever = fitted
    dataset = split.dataset
    for value in (dataset, dataset.users, split, split.test, retriever):
        assert "\n" not in repr(value)
        assert "array" not in repr(value)
    assert repr(dataset) == "Dataset of 30 users, 12 items, 180 rows"
    assert repr(split.test) == "Queries of 30 users with 30 labels"
    assert repr(retriever) == "Retriever by cooccurrence: 12 items, 30 users"
    views = beamwood.evaluate(retriever, split, ks=(3,))
    head, *rows = repr(views).splitlines()
    assert head == "mean of test users  seen items kept  seen items removed"
    assert rows[2].split() == ["f@3", *(f"{view.means()['f@3']:.4f}" for view in views.values())]
    assert repr(views["kept"]).splitlines()[:2] == ["PerQuery of 30 users", "mean of test users  seen items kept"]
    compared = beamwood.compare(split, ["popularity", "ease"], ks=(3,), progress=False)
    assert [line.split()[0] for line in repr(compared).splitlines()[:3]] == ["method", "popularity", "ease"]
    assert repr(compared).endswith(compared.conclusion)


def test_a_description_is_shown_as_its_lines(rows):
    document = describe_log(pl.DataFrame(rows, ["user_id", "item_id", "timestamp"], orient="row"))
    (lines,) = shown(document).cells
    assert "180 rows" in lines
    assert "split users" in lines


def test_a_display_does_not_grow_with_the_data():
    page = Page(table(("a", "b"), ((number, None) for number in range(70))))
    assert page.cells[-1] == "and 20 more"
    assert Page(facts(BAD, {"a": 1200, "b": None, "c": ""})).cells == [BAD, "a", "1,200"]
    assert Page(text([BAD, "b"])).cells == [f"{BAD}\nb"]


def test_training_prints_plain_lines_in_a_notebook(monkeypatch, capsys):
    """In a Jupyter kernel, rich would take the shell for a terminal and require widgets."""
    shell = type("ZMQInteractiveShell", (), {})
    monkeypatch.setattr(builtins, "get_ipython", shell, raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with TrainingProgress(enabled=True, max_steps=9, seconds_between_lines=0) as progress:
            progress.stepped(3, 0.5, 100)
            progress.evaluated(3, {"f@3": 0.25}, "f@3", best=True)
    assert capsys.readouterr().err == "step 3/9: loss 0.5000, 100 examples/s\nstep 3: f@3 0.2500 (best so far)\n"


def test_ids_are_shown_unchanged():
    assert "<td>1234567</td>" in Recommendations([[1234567]], [[0.5]])._repr_html_()
