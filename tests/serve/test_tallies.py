"""The service's counters have the format of the Prometheus client; a started coroutine can be awaited."""

import asyncio
import math
import random
import re

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from bare_environment import ROOT
from beamwood.serve.http.begun import Begun
from beamwood.serve.http.request_id import new_id
from beamwood.serve.monitoring.tallies import ReadTally, Tally, Times
from beamwood.serve.service import Service
from beamwood.serve.settings import ServeSettings
from served import saved, serving

BOUNDS = (0.001, 0.5, 2.0, 1000.0)


def test_counters_equal_those_of_the_prometheus_client():
    disable_created_metrics()
    ours, theirs, rng = CollectorRegistry(), CollectorRegistry(), random.Random(0)
    own = {"namespace": "beamwood", "registry": theirs}
    plain = Tally("plain", "Text", ours), Counter("plain", "Text", **own)
    by = Tally("by", "Text", ours, ["route", "code"]), Counter("by", "Text", ["route", "code"], **own)
    times = Times("seconds", "Text", ours, BOUNDS), Histogram("seconds", "Text", buckets=BOUNDS, **own)
    each = Times("each", "Text", ours, BOUNDS, ["stage"]), Histogram("each", "Text", ["stage"], buckets=BOUNDS, **own)
    assert generate_latest(ours) == generate_latest(theirs)
    for _ in range(200):
        value, route, code = rng.choice([*BOUNDS, 0, 3, 1e9]), rng.choice('ab"'), rng.choice(["200", "429"])
        plain[0].inc()
        plain[1].inc()
        by[0].inc(route, code, by=value)
        by[1].labels(route, code).inc(value)
        times[0].observe(value)
        times[1].observe(value)
        each[0].observe(value, route)
        each[1].labels(route).observe(value)
    ReadTally("read", "Text", ours, lambda: 7)
    Counter("read", "Text", **own).inc(7)
    assert generate_latest(ours) == generate_latest(theirs)
    assert plain[0].total == 200


def test_what_only_grows_is_a_counter(tmp_path):
    with serving(saved(tmp_path / "model")[0]) as client:
        families = {each.name: each.type for each in text_string_to_metric_families(client.get("/metrics").text)}
    for name in ("searches_abandoned", "log_lines_lost", "filter_cache_hits", "filter_cache_misses", "swaps"):
        assert families[f"beamwood_{name}"] == "counter"
    told = re.findall(r"^\| `(\w+)`", (ROOT / "docs/how-to/operate.md").read_text(), re.MULTILINE)
    told = {name for name in told if name.startswith(("beamwood_", "process_"))}
    assert len(told) > 15
    assert told <= {f"{name}_total" if kind == "counter" else name for name, kind in families.items()}


def test_no_model_has_no_age(tmp_path):
    service = Service(ServeSettings(log="none"))
    assert math.isnan(service.metrics.registry.get_sample_value("beamwood_snapshot_age_seconds"))
    service.close()
    with serving(saved(tmp_path / "model")[0]) as client:
        assert 0 <= client.service.metrics.registry.get_sample_value("beamwood_snapshot_age_seconds") < 3600


def test_requests_are_counted_by_method(tmp_path):
    with serving(saved(tmp_path / "model")[0]) as client:
        for method in ("GET", "GET", "HEAD", "DELETE"):
            client.request(method, "/v1/experiments").raise_for_status()
        families = {each.name: each for each in text_string_to_metric_families(client.get("/metrics").text)}
    asked = [each for each in families["beamwood_requests"].samples if each.labels["route"] == "/v1/experiments"]
    assert {each.labels["method"]: each.value for each in asked} == {"GET": 2, "HEAD": 1, "DELETE": 1}
    took = {each.labels["method"] for each in families["beamwood_seconds"].samples if each.labels["stage"] == "total"}
    assert {"GET", "HEAD", "DELETE"} <= took


def test_a_started_coroutine_can_be_awaited():
    told = []

    async def at_once():
        return 5

    async def wrong():
        raise ZeroDivisionError

    async def later(future):
        try:
            return 1 + await future + await asyncio.sleep(0.001, 2)
        except asyncio.CancelledError:
            told.append("cancelled")
            raise

    async def in_time(begun):
        async with asyncio.timeout(0.01):
            await begun

    async def main():
        begun = Begun(at_once())
        assert begun.done
        assert await begun == begun.value == 5
        with pytest.raises(ZeroDivisionError):
            Begun(wrong())
        future = asyncio.get_running_loop().create_future()
        begun = Begun(later(future))
        assert not begun.done
        asyncio.get_running_loop().call_soon(future.set_result, 10)
        assert await begun == 13
        with pytest.raises(TimeoutError):
            await in_time(Begun(later(asyncio.get_running_loop().create_future())))
        assert told == ["cancelled"]

    asyncio.run(main())


def test_names_of_requests_differ():
    made = {new_id() for _ in range(3000)}
    assert len(made) == 3000
    assert {len(each) for each in made} == {16}
