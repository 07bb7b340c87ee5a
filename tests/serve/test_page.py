"""The page at `/` shows what the API answers; also in Debian's Chromium if installed."""

import re
import shutil
import time
from contextlib import closing
from dataclasses import replace
from html import unescape
from urllib.parse import parse_qsl, urlsplit

import numpy as np
import polars as pl
import pytest

from beamwood.data import Vocabulary
from beamwood.retrieval.columns.item_columns import ItemColumns
from beamwood.retrieval.columns.vector_column import VectorColumn
from beamwood.retrieval.searchers.blend import Blend, Part
from beamwood.retrieval.searchers.popularity import PopularitySearcher
from beamwood.serve.answer.ids import typed_id
from beamwood.serve.http.route import Call
from beamwood.serve.page.render import file_of
from beamwood.serve.problems import Problem
from beamwood.serve.store.open import open_store
from chromium import Chromium, needs_chromium, pressed, waited_for
from retrieval_cases import retriever_of, tree_searcher, vector_searcher
from served import NUM_ITEMS, Server, item_table, post, saved, serving

ASK = "/?user=11&k=5"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "model"
    _, retriever = saved(path)
    return path, item_table(path.parent / "items.parquet", retriever)


@pytest.fixture
def client(folder):
    with serving(folder[0], items=folder[1]) as made:
        yield made


def items_of(page):
    return [int(each) for each in re.findall(r'<li data-item="(\d+)"', page)]


def test_the_first_view_makes_no_request(client):
    page = client.get("/")
    assert page.status_code == 200
    assert items_of(page.text) == []
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert 'role="alert"' not in page.text


def test_without_scripts_only_the_form_that_needs_none_is_shown(client):
    page = client.get(ASK).text
    assert "<noscript>" in page
    alone = re.sub(r'<section class="scripted".*?</section>', "", page, flags=re.DOTALL)
    assert re.findall(r"<form[^>]*>", alone) == ['<form action="/" method="get" class="card">']
    assert b"@media (scripting: none) { .scripted, .took { display: none; } }" in file_of("page.css")
    assert set(re.findall(r'<button type="button" class="(\w+)"', alone)) == {"took"}


@pytest.mark.parametrize(
    "form", ["user=11", "history=5,9,2", "user=11&history=5,9", "user=11&category=c1", "history=5&own=1&effort=1"]
)
def test_the_list_and_its_reasons_equal_the_apis(client, form):
    given = dict(part.split("=") for part in form.split("&"))
    history = [int(each) for each in given.get("history", "").split(",") if each]
    body = {"k": 5, "explain": "full", "fields": ["title"]}
    body |= {"user": 11} if "user" in given else {"history": history}
    body |= {"events": history} if "user" in given and history else {}
    body |= {"filter": {"category": ["c1"]}} if "category" in given else {}
    body |= {"effort": 1.0} if "own" in given else {}
    answer = post(client, "/v1/recommend", body)
    page = unescape(client.get(f"/?{form}&k=5").text)
    assert items_of(page) == [each["item"] for each in answer["items"]]
    for each in answer["items"]:
        assert each["fields"]["title"] in page
        for step in each["explain"]["path"]:
            assert f'<td class="path-score">{step["score"]:.4f}</td>' in page
    assert "overlap with an exact search" in page


def test_nothing_is_compared_where_nothing_is_allowed(client):
    page = client.get("/?user=11&where=price<-1").text
    assert "the filter allows none" in page
    assert "overlap" not in page


COUNTS = PopularitySearcher(np.arange(NUM_ITEMS))
SEARCHERS = {
    "popularity": lambda: COUNTS,
    "vectors": lambda: vector_searcher(NUM_ITEMS),
    "steered tree": lambda: tree_searcher(NUM_ITEMS, steered=True),
    "sum": lambda: Blend([Part(vector_searcher(NUM_ITEMS)), Part(COUNTS, 0.1)], num_candidates=20, fallback=COUNTS),
}


@pytest.mark.parametrize("kind", SEARCHERS)
@pytest.mark.parametrize("titles", [False, True])
def test_every_kind_of_model_has_its_page(kind, titles, tmp_path):
    retriever = retriever_of(SEARCHERS[kind](), text=False)
    retriever.save(tmp_path / "model")
    items = item_table(tmp_path / "items.parquet", retriever) if titles else None
    twin, other = retriever.items.decode(np.array([3, 4]))
    with serving(tmp_path / "model", items=items) as client:
        post(client, "/v1/events", {"events": [{"user": 11, "item": other}]})
        new = {"item": 99_999, "similar": [twin], "fields": {"title": "Brand new"} if titles else {}}
        assert client.put("/v1/items", json={"items": [new]}).status_code == 200
        for form in (
            "",
            "user=11",
            "user=nobody",
            f"history={twin}",
            f"history={other},99999",
            "find=9",
            "user=11&category=c1",
        ):
            page = client.get(f"/?{form}&k=90")
            assert page.status_code == 200, form
        shown = client.get(f"/?history={other}&k=90").text
        assert 99_999 in items_of(shown)
        assert ("Brand new" in shown) == titles
        assert "Brand new" in client.get("/?find=brand").text or not titles


def test_nobody_types_a_vector(tmp_path):
    retriever = retriever_of(tree_searcher(NUM_ITEMS), text=False)
    content = VectorColumn.of(np.random.default_rng(0).normal(size=(NUM_ITEMS, 4)).astype(np.float32))
    columns = ItemColumns(NUM_ITEMS, {"embedding": content, **retriever.columns.columns})
    replace(retriever, columns=columns).save(tmp_path / "model")
    with serving(tmp_path / "model") as client:
        page = client.get("/").text
    assert "embedding" not in page
    assert 'data-field="price"' in page


def test_items_are_found_by_title_and_by_id(client):
    page = client.get("/?find=title of 7").text
    assert re.findall(r'href="/\?[^"]*history=(\d+)', page)
    assert "No item has" in client.get("/?find=nothing of the kind").text


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("user=11&k=0", "whole number of 1 to 200"),
        ("user=a%00b", "not valid text"),
        ("user=11&own=1&effort=2", "outside 0..1"),
        ("user=11&where=prise<3", "prise"),
        ("user=11&category=zebra", "zebra"),
    ],
)
def test_errors_are_shown_in_the_page(client, form, said):
    page = client.get(f"/?{form}")
    assert page.status_code == 422
    assert said in unescape(re.search(r'role="alert">(.*?)</p>', page.text)[1])


def test_a_late_request_is_told_of_in_the_page(client, monkeypatch):
    monkeypatch.setattr(Call, "deadline", lambda *_: time.monotonic() - 1)
    page = client.get(ASK)
    assert page.status_code == 504
    assert "was not ready in time" in re.search(r'role="alert">(.*?)</p>', page.text)[1]
    assert 'beamwood_rejected_total{reason="deadline"} 1.0' in client.get("/metrics").text


def test_a_service_that_answers_no_view_says_why_in_the_page(client, monkeypatch):
    async def refused(*_, **__):
        raise Problem("overloaded", "the service is busy; ask again", retry_after_ms=1500)

    monkeypatch.setattr(Call, "run", refused)
    page = client.get(ASK)
    assert (page.status_code, page.headers["retry-after"]) == (429, "2")
    assert "the service is busy; ask again" in re.search(r'role="alert">(.*?)</p>', page.text)[1]


def test_input_is_escaped(client):
    page = client.get("/?find=<script>alert(1)</script>&user=<b>").text
    assert "<script>alert" not in page
    assert "<b>" not in page


def test_ids_with_commas_can_be_chosen_and_typed(tmp_path):
    _, retriever = saved(tmp_path / "plain", text=True)
    ids = [f"{name}, [{place}]" for place, name in enumerate(retriever.items.ids)]
    ids[1:3] = "[1]", "12"
    replace(retriever, items=Vocabulary(pl.Series(ids))).save(tmp_path / "model")
    with serving(tmp_path / "model") as client:
        typed = ""
        for place in (0, 1, 2, 5):
            found = client.get("/", params={"find": ids[place], "history": typed}).text
            link = unescape(re.findall(r'<a href="(/\?history[^"]*)"', found)[0])
            typed = dict(parse_qsl(urlsplit(link).query))["history"]
            page = client.get(link).text
            assert "Unknown items" not in page
            shown = re.search(r"History of this request</h2>\s*<ol[^>]*>(.*?)</ol>", page, re.DOTALL)[1]
            listed = [unescape(each) for each in re.findall("<li>(.*?)</li>", shown)]
            assert listed == [ids[each] for each in (0, 1, 2, 5) if each <= place]


def test_the_script_reads_numbers_as_the_service_does():
    pattern = re.search(r"putting.dataset.ids === .number. && /\^\((.*?)\)\$/", file_of("page.js").decode())
    for text in (
        "0",
        "-5",
        "007",
        "1",
        str(2**53 + 1),
        str(2**63 - 1),
        str(2**64 - 1),
        str(10**19),
        "+1",
        "1.0",
        "--1",
        "",
    ):
        read = typed_id(text, Vocabulary(pl.Series([1, 2])))
        assert bool(re.fullmatch(pattern[1], text)) == isinstance(read, int), text


def test_a_category_beyond_those_that_are_suggested_is_shown_and_kept(tmp_path):
    names = [f"c{number:03d}" for number in range(NUM_ITEMS * 3)]
    retriever = retriever_of(vector_searcher(len(names)))
    replace(retriever, columns=ItemColumns.of(pl.DataFrame({"category": names}))).save(tmp_path / "model")
    with serving(tmp_path / "model") as client:
        text = client.get(f"/?user=11&category={names[-1]}").text
    assert (text.count("data-item="), text.count(f'name="category" value="{names[-1]}"')) == (1, 1)


def test_an_event_changes_the_list(client):
    first = items_of(client.get(ASK).text)
    post(client, "/v1/events", {"events": [{"user": 11, "item": first[0]}]})
    assert first[0] not in items_of(client.get(ASK).text)


def test_a_right_to_left_title_does_not_affect_other_text(client):
    rules = re.findall(r"([^{}]+){([^}]*)}", client.get("/page.css").text)
    told = [name.strip() for names, body in rules if "unicode-bidi: isolate" in body for name in names.split(",")]
    assert {"small", "dt", ".picks a"} <= set(told)
    assert any(name.endswith("strong") for name in told)


def test_current_metrics_are_shown(client):
    before = client.get("/page/live").json()
    client.get(ASK)
    assert client.get("/page/live").json()["answered"] > before["answered"]


def test_the_page_can_be_disabled(folder):
    with serving(folder[0], page=False) as client:
        assert client.get("/").status_code == 404


_LABELS = """[...document.querySelectorAll('input, select, button')].filter(each =>
  !(each.labels && each.labels.length) && !each.textContent.trim() && !each.getAttribute('aria-label')).length"""
_CONTRAST = """(() => {
  const parts = (text) => text.match(/[\\d.]+/g).map(Number);
  const linear = (v) => v / 255 <= .03928 ? v / 255 / 12.92 : ((v / 255 + .055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => .2126 * linear(r) + .7152 * linear(g) + .0722 * linear(b);
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const colour = parts(getComputedStyle(node).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const read = 'p, dt, dd, label, button, a, small, strong, summary, th, td, h1, h2, figcaption, .rank, .score';
  return [...document.querySelectorAll(read)].filter(each => each.textContent.trim() && each.getClientRects().length)
    .filter(each => {
      const [a, b] = [light(parts(getComputedStyle(each).color)), light(behind(each))].sort((x, y) => y - x);
      return (a + .05) / (b + .05) < 4.5;
    }).map(each => each.textContent.trim().slice(0, 40));
})()"""


# A busy machine may be slow.
PATIENT = ("--store", "memory", "--log", "none", "--timeout", "60s", "--max-wait", "60s")


def typed(browser, field, text):
    browser.ask(f"document.querySelector('{field}').focus()")
    browser.call("Input.insertText", text=text)


def said(browser, text):
    waited_for(browser, f"document.getElementById('item-said').textContent.includes({text!r})", True)


def check_looks(browser, width):
    """Check for errors and overflow, that every field has a label, and that all text has enough contrast."""
    assert browser.errors() == []
    browser.ask("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    assert browser.ask("document.documentElement.scrollWidth") <= width
    assert browser.ask(_LABELS) == 0
    assert browser.ask(_CONTRAST) == []


@needs_chromium
def test_the_page_works_in_a_browser(folder, tmp_path):
    for name in ("model", "next"):
        shutil.copytree(folder[0], tmp_path / "models" / name)
    address = f"sqlite:{tmp_path / 'events.db'}"
    with closing(open_store(address)) as store:
        store.put("experiment", '{"name": "of another version"}')
    options = ("--items", str(folder[1]), "--models-dir", str(tmp_path / "models"), "--store", address, *PATIENT[2:])
    with Server(tmp_path / "models" / "model", *options) as server, Chromium(tmp_path) as browser:
        for width, dark in ((360, True), (1280, False)):
            browser.visit(server.address + "/?user=11&k=20", width, dark=dark, drawn="live")
            assert all(url.startswith((server.address, "data:")) for url in browser.requested())
            assert browser.ask("document.querySelectorAll('ol.answer > li').length") == 20
            check_looks(browser, width)
            browser.picture(tmp_path / f"page-{width}.png", height=2400)
        first = browser.ask("document.querySelector('ol.answer > li').dataset.item")
        pressed(browser, "document.querySelector('button.took')")
        waited_for(browser, f"document.querySelector('li[data-item=\"{first}\"]') === null", True)
        # The page reloads, in parts if the machine is busy.
        waited_for(browser, "document.querySelectorAll('ol.answer > li').length", 20)
        waited_for(browser, "document.readyState", "complete")
        browser.ask("document.getElementById('models-show').click()")
        answers = "document.getElementById('model-list').textContent.includes('answers, searched by')"
        waited_for(browser, answers, True)
        listed = "document.getElementById('model-list').textContent.includes"
        buttons = "[...document.querySelectorAll('#model-list button')]"
        # An experiment that cannot be read must be ended before another one begins.
        waited_for(browser, f"{listed}('The experiment of the store is not followed here (the stored')", True)
        assert browser.ask(f"{buttons}.map(each => each.textContent)") == ["load next", "end it"]
        pressed(browser, f"{buttons}.find(each => each.textContent === 'end it')")
        waited_for(browser, f"{listed}('The experiment')", False)
        # What answers already is not offered.
        texts = browser.ask(f"{buttons}.map(each => each.textContent)")
        assert texts == ["load next", "try next on half of the users"]
        # An experiment begins and ends there.
        pressed(browser, f"{buttons}.find(each => each.textContent === 'try next on half of the users')")
        waited_for(browser, f"{listed}('The experiment next runs: current 50 %, next 50 %.')", True)
        assert "arm" in server.ask("/v1/recommend", {"user": 11})[1]
        assert browser.ask(f"{buttons}.some(each => each.textContent.startsWith('try'))") is False
        check_looks(browser, 1280)
        pressed(browser, f"{buttons}.find(each => each.textContent === 'end it')")
        waited_for(browser, f"{listed}('The experiment')", False)
        assert "arm" not in server.ask("/v1/recommend", {"user": 11})[1]
        assert browser.errors() == []


@needs_chromium
def test_new_items_are_added_hidden_and_erased_in_the_page(folder, tmp_path):
    path, table = folder
    with serving(path, items=table) as client:
        twin, other = (items_of(client.get(ASK).text)[place] for place in (0, 1))
    with (
        Server(path, "--items", str(table), "--new-item-share", "1", *PATIENT) as server,
        Chromium(tmp_path) as browser,
    ):
        browser.visit(server.address + ASK, 1280, drawn="live")
        typed(browser, "#item-put [name=item]", "90071992547409931")
        typed(browser, "#item-put [name=similar]", f"{twin}, {other}")
        typed(browser, "#item-put [data-field=title]", "A new title")
        typed(browser, "#item-put [data-field=price]", "7.5")
        pressed(browser, "document.querySelector('#item-put [data-field=price]')")
        said(browser, "from the items that it is like")
        asked = {"user": 11, "k": 90, "fields": ["title"], "filter": {"where": {"price": 7.5}}}
        status, answer = server.ask("/v1/recommend", asked)
        assert status == 200
        # Long integers are not rounded by the script.
        assert {"title": "A new title"} in [
            each["fields"] for each in answer["items"] if each["item"] == 90071992547409931
        ]

        typed(browser, "#item-put [name=item]", "5000")
        pressed(browser, "document.querySelector('#item-put [name=item]')")
        said(browser, "it has no place in lists yet")
        typed(browser, "#item-put [name=item]", str(twin))
        pressed(browser, "document.querySelector('#item-put button')")
        said(browser, "was fitted")

        pressed(browser, "document.getElementById('items-show')")
        waited_for(browser, "document.querySelectorAll('#item-list tbody tr').length", 2)
        for width, dark in ((360, False), (360, True), (1280, True)):
            shown = browser.ask(
                "[...document.querySelectorAll('#item-list th[scope=row]')].map(each => each.textContent)"
            )
            assert "5000" in shown
            browser.visit(server.address + ASK, width, dark=dark, drawn="live")
            pressed(browser, "document.getElementById('items-show')")
            waited_for(browser, "document.querySelectorAll('#item-list tbody tr').length", 2)
            check_looks(browser, width)

        browser.ask("document.querySelector('#item-list tr[data-item=\"5000\"] button').click()")
        said(browser, "5000 is shown to nobody from now on")
        erase = "document.querySelector('#item-list tr[data-item=\"5000\"] button.danger')"
        pressed(browser, erase)
        said(browser, "Press again")
        assert len(server.ask("/v1/items")[1]["items"]) == 2
        pressed(browser, erase)
        said(browser, "5000 is erased")
        waited_for(browser, "document.querySelectorAll('#item-list tbody tr').length", 1)

        typed(browser, "#item-change [name=item]", str(twin))
        pressed(browser, "document.querySelector('#item-change [value=hide]')")
        said(browser, f"{twin} is shown to nobody from now on")
        assert twin not in [each["item"] for each in server.ask("/v1/recommend", {"user": 11, "k": 90})[1]["items"]]
        pressed(browser, "document.querySelector('#item-change [value=show]')")
        said(browser, f"{twin} may be shown from now on")
        typed(browser, "#item-change [name=item]", "7x")
        pressed(browser, "document.querySelector('#item-change [value=show]')")
        said(browser, "is unknown")
        assert [each for each in browser.errors() if "exceptionDetails" in each] == []
