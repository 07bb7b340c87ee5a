"""The script of the page in Debian's Chromium if installed, and the figures that it keeps up to date."""

import pytest

from beamwood.serve.admission import Admission
from chromium import Chromium, needs_chromium
from served import Server, recommend, saved, serving

# Four looks at a count and the time, with a start of the service between them, then one look at a hidden page.
RATES = """(async () => {
  const counts = [10, 30, 5, 25], times = [0, 4000, 6000, 16000];
  let look = 0;
  asked = async () => ({ answered: counts[look], refused: 0, narrowed: 0, waiting: 0, search_ms: 0 });
  performance.now = () => times[look];
  rates.length = searches.length = 0;
  before = null;
  for (; look < 4; look++) await live();
  const found = [...rates], last = before.answered;
  Object.defineProperty(document, "hidden", { value: true });
  await keepUp();
  return [found, last, before];
})()"""
# Presses for one item, then for another; looks that are refused for good, and for now; an event that is refused.
PRESSES = """(() => {
  const button = Object.assign(document.createElement("button"), { value: "erase" });
  return ["1", "1", "1", "2", "2"].map((text) => sure(button, text));
})()"""
REFUSED = """(async () => {
  let rounds = 0;
  window.setTimeout = () => { rounds++; };
  const found = [];
  for (const status of [401, 403, 503]) {
    asked = async () => { throw Object.assign(new Error("no"), { status }); };
    rounds = 0;
    await keepUp();
    found.push(rounds);
  }
  const button = document.querySelector("button.took"), said = button.nextElementSibling;
  await took(button);
  return [found, button.textContent, said.getAttribute("role"), said.textContent];
})()"""

# What is shown and said of the service: now, where a proxy answers for it, and again by itself.
ALONE = """(async () => {
  const cells = () => [...figures].map((cell) => cell.textContent).includes("–");
  const said = () => document.getElementById("live-said").textContent;
  const found = [[cells(), said()]], own = window.fetch;
  window.setTimeout = () => {};
  window.fetch = async () => new Response("<html>503</html>", { status: 503 });
  await keepUp();
  await worked(items);
  found.push([cells(), said()], document.getElementById("item-said").textContent);
  window.fetch = own;
  await keepUp();
  return [...found, [cells(), said()]];
})()"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("figures") / "model")[0]


def test_refused_requests_are_not_answered_and_callers_wait_as_well_as_searches(folder, monkeypatch):
    with serving(folder) as client:
        before = client.get("/page/live").json()
        recommend(client, {"user": 11})
        recommend(client, {"user": 11, "k": 0}, 422)
        monkeypatch.setattr(Admission, "waiting", property(lambda _: 3))
        after = client.get("/page/live").json()
    # The first look is answered too.
    assert after["answered"] == before["answered"] + 2
    assert after["refused"] == before["refused"] + 1
    assert (before["waiting"], after["waiting"]) == (0, 3)


def test_a_refused_connection_is_no_answer_less(folder):
    with serving(folder) as client:
        before = client.get("/page/live").json()
        for _ in range(5):
            client.service.metrics.rejected.inc("connections")
        after = client.get("/page/live").json()
    assert (after["answered"], after["refused"]) == (before["answered"] + 1, before["refused"] + 5)


@needs_chromium
def test_a_rate_is_by_the_time_between_two_looks(folder, tmp_path):
    with Server(folder, "--store", "memory", "--log", "none") as server, Chromium(tmp_path) as browser:
        browser.visit(server.address, 1280, drawn="live")
        assert browser.ask(RATES) == [[5, 2], 25, None]


@needs_chromium
def test_figures_are_shown_only_while_the_service_answers(folder, tmp_path):
    said = "the service does not answer; try again later"
    with Server(folder, "--store", "memory", "--log", "none") as server, Chromium(tmp_path) as browser:
        browser.visit(server.address, 1280, drawn="live")
        assert browser.ask(ALONE) == [[False, ""], [True, said], said, [False, ""]]
        server.process.kill()
        server.ended()
        assert browser.ask("live().catch((error) => error.message)") == said


@needs_chromium
def test_what_is_refused_is_said_and_what_cannot_be_undone_is_asked_twice(folder, tmp_path):
    # A busy machine may be slow.
    patient = ("--store", "memory", "--log", "none", "--timeout", "60s", "--max-wait", "60s")
    with Server(folder, *patient) as server, Chromium(tmp_path) as browser:
        browser.visit(server.address + "/?user=11", 1280, drawn="live")
        assert browser.ask(PRESSES) == [False, True, False, False, True]
        assert browser.ask(REFUSED) == [[0, 0, 1], "took it", "status", "no"]
