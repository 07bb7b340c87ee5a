"""A watched folder of models under typical operations: copying, moving, and concurrent loads."""

from __future__ import annotations

import asyncio
import shutil
import signal
import urllib.request
from datetime import UTC, datetime, timedelta

import pytest

from beamwood.artefact.manifest import read_manifest
from beamwood.retrieval.retriever import Retriever
from beamwood.serve import loading, upkeep
from beamwood.serve.answer.snapshot import open_snapshot
from beamwood.serve.loading import Loader
from beamwood.serve.upkeep import follow_folder
from served import Server, post, saved, serving, wait_until


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Two models, of which the second is newer."""
    root = tmp_path_factory.mktemp("models")
    return [saved(root / name, seed)[0] for seed, name in enumerate(("one", "other"))]


@pytest.fixture
def watched(models, tmp_path, monkeypatch):
    """A client of the first model, and the watched folder."""
    monkeypatch.setattr(upkeep, "_LOOK_EVERY", 0.05)
    # All were written within one second.
    created, times = loading._created, {"one": "2026-01-01", "other": "2026-01-02", "broken": "2026-01-03"}
    monkeypatch.setattr(loading, "_created", lambda path: created(path) and times.get(path.name, "2026-01-04"))
    root = tmp_path / "models"
    root.mkdir()
    with serving(models[0], models_dir=root) as client:
        task = client.portal.start_task_soon(follow_folder, client.service, models[0])
        yield client, root
        task.cancel()


def model(client):
    return client.service.models.current.folder.name


def refused(client):
    return sum(count for (said,), count in client.service.metrics.swaps._counts.items() if said == "refused")


def test_a_slowly_copied_folder_is_loaded_once_complete(watched, models):
    client, root = watched
    target = root / "other"
    target.mkdir()
    files = sorted(models[1].iterdir(), key=lambda file: file.name != "manifest.json")
    shutil.copy2(files[0], target / files[0].name)
    wait_until(lambda: refused(client) == 1)
    for file in files[1:]:
        shutil.copy2(file, target / file.name)
    wait_until(lambda: model(client) == "other")


def test_a_model_too_large_for_the_memory_does_not_end_the_watch(watched, models, monkeypatch):
    client, root = watched
    opened, tried, said = client.service.models.opened, [], []
    monkeypatch.setattr(client.service.loader, "_said", lambda event, **more: said.append((event, more.get("reason"))))

    def without_memory(folder, **options):
        tried.append(folder.name)
        if folder.name == "other":
            raise MemoryError("cannot allocate")
        return opened(folder, **options)

    monkeypatch.setattr(client.service.models, "opened", without_memory)
    shutil.copytree(models[1], root / "other")
    wait_until(lambda: refused(client) == 1)
    shutil.copytree(models[1], root / "later")
    wait_until(lambda: model(client) == "later")
    assert tried.count("other") == 1
    assert ("model_refused", "MemoryError: cannot allocate") in said


def test_a_copy_completed_during_its_refusal_is_loaded(watched, models, monkeypatch):
    client, root = watched
    active = client.service.models
    opened = active.opened

    def slowly(folder, **options):
        try:
            return opened(folder, **options)
        finally:
            for file in models[1].iterdir():
                shutil.copy2(file, folder / file.name)

    monkeypatch.setattr(active, "opened", slowly)
    (root / "other").mkdir()
    shutil.copy2(models[1] / "manifest.json", root / "other" / "manifest.json")
    wait_until(lambda: model(client) == "other")
    assert refused(client) == 1


def test_an_unfinished_save_is_not_a_model(watched, models):
    client, root = watched
    shutil.copytree(models[1], root / ".other.0123456789ab.saving")
    assert client.service.loader.changed(models[0]) is None
    assert client.get("/v1/models").json()["available"] == []
    (root / ".other.0123456789ab.saving").rename(root / "other")
    wait_until(lambda: model(client) == "other")


def test_a_folder_replaced_while_it_is_opened_gives_one_model(models, tmp_path, monkeypatch):
    folder, load = tmp_path / "model", Retriever.load
    shutil.copytree(models[0], folder)

    def replaced(path, **options):
        found = load(path, **options)
        monkeypatch.setattr(Retriever, "load", load)
        load(models[1]).save(folder, overwrite=True)
        return found

    monkeypatch.setattr(Retriever, "load", replaced)
    snapshot = open_snapshot(folder)
    assert snapshot.key == read_manifest(folder)["checksum"]
    assert snapshot.retriever.recommend([[]], 5).item_ids == load(models[1]).recommend([[]], 5).item_ids
    assert load(models[0]).recommend([[]], 5).item_ids != load(models[1]).recommend([[]], 5).item_ids


def test_a_refused_folder_is_not_retried_and_does_not_hide_others(watched, models, tmp_path):
    client, root = watched
    shutil.copytree(models[1], root / "broken")
    weights = root / "broken" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    wait_until(lambda: refused(client) == 1)
    shutil.copytree(models[1], tmp_path / "other")
    (tmp_path / "other").rename(root / "other")
    wait_until(lambda: model(client) == "other")
    assert refused(client) == 1


def test_a_watched_folder_may_disappear_and_return(watched, models, tmp_path):
    client, root = watched
    said = []
    client.service.log.said = client.service.loader._said = lambda event, **more: said.append((event, more))
    root.rename(tmp_path / "away")
    wait_until(lambda: said)
    assert client.get("/v1/models").json()["available"] == []
    (tmp_path / "away").rename(root)
    shutil.copytree(models[1], tmp_path / "other")
    (tmp_path / "other").rename(root / "other")
    wait_until(lambda: len(said) > 1)
    assert model(client) == "other"
    assert [event for event, _ in said] == ["watch_failed", "model_loaded"]


def test_a_folder_found_during_a_load_is_loaded_afterwards(watched, models, tmp_path, monkeypatch):
    client, root = watched
    shutil.copytree(models[0], tmp_path / "one")
    load = Loader._load

    async def slowly(self, path, began):
        if path.name == "one":
            shutil.copytree(models[1], tmp_path / "other")
            (tmp_path / "other").rename(root / "other")
            await asyncio.sleep(0.4)
        return await load(self, path, began)

    monkeypatch.setattr(Loader, "_load", slowly)
    (tmp_path / "one").rename(root / "one")
    post(client, "/v1/models/load", {"path": "one"})
    wait_until(lambda: model(client) == "other")


def test_folders_that_stay_the_same_are_read_once(models, tmp_path, monkeypatch):
    """A year of models is looked through every other second."""
    root, reads = tmp_path / "models", []

    def noted(path):
        if path.parent == root:
            reads.append(path.name)
        return read_manifest(path)

    monkeypatch.setattr(loading, "read_manifest", noted)
    for number in range(3):
        shutil.copytree(models[0], root / f"{number}")
    with serving(models[0], models_dir=root) as client:
        for _ in range(3):
            assert client.service.loader.changed(models[0]) is None
        assert sorted(reads) == ["0", "1", "2"]
        reads.clear()
        shutil.copy(models[1] / "manifest.json", root / "1")
        client.service.loader.changed(models[0])
        assert reads == ["1"]


def test_a_model_dated_in_the_future_does_not_stop_the_watch(models, tmp_path, monkeypatch):
    root, soon = tmp_path / "models", datetime.now(UTC) + timedelta(days=1)
    times = {"one": "2026-01-01", "other": "2999-01-01", "later": soon.isoformat(timespec="seconds")}
    monkeypatch.setattr(loading, "_created", lambda path: times.get(path.name, ""))
    saved(root / "later", 2)
    (root / "later").rename(tmp_path / "later")
    shutil.copytree(models[1], root / "other")
    with serving(models[0], models_dir=root) as client:
        loader = client.service.loader
        assert loader.changed(models[0]) == root / "other"
        post(client, "/v1/models/load", {"path": "other"})
        assert loader.changed(models[0]) is None
        post(client, "/v1/models/rollback", {})
        assert loader.changed(models[0]) is None, "it was left"
        (tmp_path / "later").rename(root / "later")
        assert loader.changed(models[0]) == root / "later"


def test_a_refused_link_is_tried_again_on_demand(models, tmp_path):
    broken, current = tmp_path / "broken", tmp_path / "current"
    shutil.copytree(models[1], broken)
    weights = broken / "weights.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-10])
    current.symlink_to(models[0])
    with Server(current, "--timeout", "60s", "--store", "memory") as server:

        def swaps():
            with urllib.request.urlopen(server.address + "/metrics", timeout=60) as answer:
                return [
                    line for line in answer.read().decode().splitlines() if line.startswith("beamwood_swaps_total{")
                ]

        current.unlink()
        current.symlink_to(broken)
        server.signal(signal.SIGHUP)
        wait_until(lambda: any("refused" in line for line in swaps()))
        weights.write_bytes(whole)
        server.signal(signal.SIGHUP)
        wait_until(lambda: any("loaded" in line for line in swaps()))
