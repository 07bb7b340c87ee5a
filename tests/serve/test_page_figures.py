"""The figures that the page keeps up to date: what is counted, and the rate in Debian's Chromium if installed."""

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


@needs_chromium
def test_a_rate_is_by_the_time_between_two_looks(folder, tmp_path):
    with Server(folder, "--store", "memory", "--log", "none") as server, Chromium(tmp_path) as browser:
        browser.visit(server.address, 1280, drawn="live")
        assert browser.ask(RATES) == [[5, 2], 25, None]
