"""A clock that jumps loses no stored answer before its time, and ages no model."""

import re
import time
from contextlib import closing

import numpy as np
import pytest

from beamwood.errors import InputError
from beamwood.serve.clock import Steady
from beamwood.serve.monitoring.replay import replayed
from beamwood.serve.settings import ServeSettings
from beamwood.serve.store.memory import MemoryStore
from beamwood.serve.store.open import open_store
from beamwood.serve.store.protocol import Answered
from served import post, saved, serving, wait_until

NOW, HOUR = 1.7e9, 3600.0


def test_a_steady_clock_omits_jumps_ahead_for_a_while():
    clock = Steady(10 * HOUR, NOW, 100.0)
    assert clock.at(NOW + 50.4, 150.0) == NOW + 50.4
    assert clock.at(NOW + HOUR + 60, 160.0) == pytest.approx(NOW + 60, abs=1)
    # Ahead by one more hour, and set right again.
    assert clock.at(NOW + 2 * HOUR + 70, 170.0) == pytest.approx(NOW + 70, abs=1)
    assert clock.at(NOW + 80, 180.0) < NOW + 80
    # What was stored before the jumps is past its time by any clock.
    assert clock.at(NOW + 10 * HOUR + 100, 200.0 + 10 * HOUR) == NOW + 10 * HOUR + 100


@pytest.mark.parametrize("jump", [HOUR, -HOUR, 1000 * HOUR])
def test_a_jump_loses_no_stored_answer(tmp_path, monkeypatch, jump):
    folder, retriever = saved(tmp_path / "model")
    body, real = {"history": retriever.items.decode(np.arange(3))}, time.time
    with serving(folder, keep_answers=600.0) as client:
        ids = []
        for ahead in (0, jump, jump + 1, 2):
            monkeypatch.setattr(time, "time", lambda ahead=ahead: real() + ahead)
            ids.append(post(client, "/v1/recommend", body)["request_id"])
            client.portal.call(client.service.outcomes.flush, time.monotonic())
        store = client.service.histories.store
        assert store.noted(ids).keys() == set(ids)


@pytest.mark.parametrize("keep_answers", [0.0, 600.0])
def test_old_answers_are_let_go_of_without_new_ones(tmp_path, monkeypatch, keep_answers):
    """Those that an earlier process stored too."""
    folder, _ = saved(tmp_path / "model")
    store = MemoryStore()
    store.note([Answered("old", 11, time.time() - 3600, "group", (1,))], 86400.0, time.time())
    monkeypatch.setattr(ServeSettings, "opened_store", lambda _: store)
    with serving(folder, keep_answers=keep_answers):
        wait_until(lambda: not store.noted(["old"]))


def test_an_answer_past_its_time_is_let_go_of_by_an_idle_service(tmp_path):
    folder, retriever = saved(tmp_path / "model")
    body = {"history": retriever.items.decode(np.arange(3))}
    with serving(folder, store=f"sqlite:{tmp_path / 'events.db'}", keep_answers=1.0) as client:
        store, ids = client.service.histories.store, []

        def is_stored():
            """A machine that stands still for a second lets go of an answer before it is seen."""
            ids.append(post(client, "/v1/recommend", body)["request_id"])
            client.portal.call(client.service.outcomes.flush, time.monotonic())
            return store.noted([ids[-1]])

        wait_until(is_stored)
        wait_until(lambda: not store.noted([ids[-1]]))


def test_an_answer_past_its_time_is_not_explained_after_the_service_has_ended(tmp_path, monkeypatch):
    folder, retriever = saved(tmp_path / "model")
    address, real = f"sqlite:{tmp_path / 'events.db'}", time.time
    with serving(folder, store=address, keep_answers=600.0) as client:
        name = post(client, "/v1/recommend", {"history": retriever.items.decode(np.arange(3))})["request_id"]
    with closing(open_store(address, read_only=True)) as store:
        assert replayed(store, name).reproduced
        monkeypatch.setattr(time, "time", lambda: real() + 601)
        with pytest.raises(InputError, match="older than the --keep-answers of its server"):
            replayed(store, name)


def test_no_answer_is_stored_on_request(tmp_path):
    folder, retriever = saved(tmp_path / "model")
    with serving(folder, keep_answers=0.0) as client:
        answer = post(client, "/v1/recommend", {"history": retriever.items.decode(np.arange(3))})
        client.portal.call(client.service.outcomes.flush, time.monotonic())
        assert not client.service.histories.store.noted([answer["request_id"]])
        assert client.get("/v1/experiments").json()["groups"] == []


@pytest.mark.parametrize("jump", [-10 * HOUR, 10 * HOUR])
def test_a_jump_does_not_change_the_age_of_a_model(tmp_path, monkeypatch, jump):
    folder, _ = saved(tmp_path / "model")
    with serving(folder) as client:
        now = time.time
        monkeypatch.setattr(time, "time", lambda: now() + jump)
        assert 0 <= client.get("/v1/models").json()["age_seconds"] < HOUR
        (age,) = re.findall(r"^beamwood_snapshot_age_seconds (.*)$", client.get("/metrics").text, re.MULTILINE)
        assert 0 <= float(age) < HOUR
