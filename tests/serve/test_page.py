"""The page at `/`: what it shows is what the API answers; in Debian's Chromium where that is."""

import re
import time
from html import unescape

import pytest

from chromium import Chromium, needs_chromium
from served import Server, item_table, post, saved, serving

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


def test_a_first_look_asks_for_nothing(client):
    page = client.get("/")
    assert page.status_code == 200
    assert items_of(page.text) == []
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert 'role="alert"' not in page.text


@pytest.mark.parametrize(
    "form", ["user=11", "history=5,9,2", "user=11&history=5,9", "user=11&category=c1", "history=5&own=1&effort=1"]
)
def test_the_list_and_its_reasons_are_the_apis(client, form):
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


def test_items_are_found_by_title_and_by_id(client):
    page = client.get("/?find=title of 7").text
    assert re.findall(r'href="/\?[^"]*history=(\d+)', page)
    assert "No item has" in client.get("/?find=nothing of the kind").text


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("user=11&k=0", "whole number of 1 to 200"),
        ("user=11&own=1&effort=2", "outside 0..1"),
        ("user=11&where=prise<3", "prise"),
        ("user=11&category=zebra", "zebra"),
    ],
)
def test_what_is_wrong_is_said_in_the_page(client, form, said):
    page = client.get(f"/?{form}")
    assert page.status_code == 422
    assert said in unescape(re.search(r'role="alert">(.*?)</p>', page.text)[1])


def test_what_is_typed_stays_text(client):
    page = client.get("/?find=<script>alert(1)</script>&user=<b>").text
    assert "<script>alert" not in page
    assert "<b>" not in page


def test_an_event_is_followed(client):
    first = items_of(client.get(ASK).text)
    post(client, "/v1/events", {"events": [{"user": 11, "item": first[0]}]})
    assert first[0] not in items_of(client.get(ASK).text)


def test_figures_of_now(client):
    before = client.get("/page/live").json()
    client.get(ASK)
    assert client.get("/page/live").json()["answered"] > before["answered"]


def test_without_a_page(folder):
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


def waited_for(browser, expression, wanted):
    until = time.monotonic() + 30
    while browser.ask(expression) != wanted:
        assert time.monotonic() < until, expression
        time.sleep(0.1)


@needs_chromium
def test_it_is_fit_for_a_guest(folder, tmp_path):
    options = ("--items", str(folder[1]), "--store", "memory", "--log", "none", "--timeout", "60s", "--max-wait", "60s")
    with Server(folder[0], *options) as server, Chromium(tmp_path) as browser:
        for width, dark in ((360, True), (1280, False)):
            browser.visit(server.address + "/?user=11&k=20", width, dark=dark, drawn="live")
            assert browser.errors() == []
            assert all(url.startswith((server.address, "data:")) for url in browser.requested())
            browser.ask("document.querySelectorAll('details').forEach(each => { each.open = true; })")
            assert browser.ask("document.documentElement.scrollWidth") <= width
            assert browser.ask("document.querySelectorAll('ol.answer > li').length") == 20
            assert browser.ask(_LABELS) == 0
            assert browser.ask(_CONTRAST) == []
            browser.picture(tmp_path / f"page-{width}.png", height=2400)
        # By the keyboard alone: the first of the list is taken, and is not answered again.
        first = browser.ask("document.querySelector('ol.answer > li').dataset.item")
        browser.ask("document.querySelector('button.took').focus()")
        for kind in ("keyDown", "keyUp"):
            enter = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}
            browser.call("Input.dispatchKeyEvent", type=kind, **enter)
        # It may be seen while it is still read: both have to hold at once.
        shown = "document.querySelectorAll('ol.answer > li').length === 20"
        waited_for(browser, f"{shown} && document.querySelector('li[data-item=\"{first}\"]') === null", True)
        browser.ask("document.getElementById('models-show').click()")
        said = "document.getElementById('model-list').textContent.includes('answers, searched by')"
        waited_for(browser, said, True)
        assert browser.errors() == []
