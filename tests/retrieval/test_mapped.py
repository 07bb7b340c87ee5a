"""Memory-mapped folders: equal answers, pages shared by processes, checks on demand, ids of every type."""

import datetime as dt
import os
import pickle
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from safetensors.numpy import save

import beamwood
from beamwood.artefact import read_artefact
from beamwood.artefact.mapped import map_arrays
from beamwood.data import Vocabulary
from beamwood.errors import ArtefactError, InputError
from beamwood.kernels import active_kernels
from beamwood.retrieval.retriever import Retriever
from beamwood.retrieval.searchers.popularity import PopularitySearcher
from bounded import line_of
from retrieval_cases import item_frame, retriever_of, tree_searcher, vector_searcher


@pytest.mark.parametrize("text", [True, False])
def test_mapped_equals_read(text, tmp_path):
    fitted = retriever_of(tree_searcher(300), text=text)
    fitted.save(tmp_path / "model")
    asked = fitted.items.decode(np.arange(20))
    for loaded in (beamwood.load(tmp_path / "model"), beamwood.load(tmp_path / "model", threads=2, verify=True)):
        for ask in ({"histories": [asked, []]}, {"users": [3, 4, 11]}):
            for rest in ({}, {"allowed": {"category": ["c1", "c3"]}}, {"where": {"price": {"lt": 9}}}):
                assert loaded.recommend(k=7, **ask, **rest) == fitted.recommend(k=7, **ask, **rest)
        assert loaded.items.ids.equals(fitted.items.ids)
        again = pickle.loads(pickle.dumps(loaded))
        assert again.recommend([asked], 5) == fitted.recommend([asked], 5)
        loaded.save(tmp_path / "again", overwrite=True)
        assert beamwood.load(tmp_path / "again").recommend([asked], 5) == fitted.recommend([asked], 5)


@pytest.mark.parametrize(
    "ids",
    [
        [3, 1, 2],
        [2**63, 5, 7],
        [-5, 3, 2**40],
        ["b", "a", "äö ü"],
        ["", "x", "🙂"],
        [dt.date(2026, 1, day) for day in (3, 1, 2)],
        [b"1", b"22", b"3"],
        [1.5, 2.5, -3.0],
    ],
)
def test_ids_of_every_type(ids, tmp_path):
    fitted = Retriever(PopularitySearcher(np.arange(3)), Vocabulary(pl.Series(ids)))
    fitted.save(tmp_path / "model")
    loaded = beamwood.load(tmp_path / "model", verify=True)
    assert loaded.items.dtype == fitted.items.dtype
    assert loaded.items.ids.to_list() == ids == loaded.items.decode(np.arange(3))
    assert loaded.items.encode([ids[2], ids[0]]).tolist() == [2, 0]
    assert loaded.recommend([[ids[2]]], 2).item_ids == [[ids[1], ids[0]]]


def test_verify_finds_damage(tmp_path):
    retriever_of(vector_searcher(300)).save(tmp_path / "model")
    file = tmp_path / "model" / "weights.safetensors"
    content = bytearray(file.read_bytes())
    content[-5] ^= 64
    file.write_bytes(content)
    beamwood.load(tmp_path / "model")
    with pytest.raises(ArtefactError, match="sha256"):
        beamwood.load(tmp_path / "model", verify=True)
    file.write_bytes(content[:-4])
    with pytest.raises(ArtefactError, match="bytes"):
        beamwood.load(tmp_path / "model")
    for threads in (0, 1025):
        with pytest.raises(InputError, match=rf"threads={threads} .* 1\.\.1024"):
            beamwood.load(tmp_path / "model", threads=threads)
    file.write_bytes(content)
    assert beamwood.load(tmp_path / "model", threads=np.int64(2)) is not None


@pytest.mark.parametrize(("name", "value"), [("BEAMWOOD_LEVEL", "avx2"), ("BEAMWOOD_KERNELS", "nativ")])
def test_a_wrong_environment_variable_is_not_blamed_on_the_folder(tmp_path, monkeypatch, name, value):
    if active_kernels()["path"] == "reference":
        pytest.skip("the native core is not built")
    retriever_of(tree_searcher(60)).save(tmp_path / "model")
    monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=f"^{name}='{value}' (?!.*fit)"):
        beamwood.load(tmp_path / "model")


def test_unaligned_arrays_are_copied(tmp_path):
    arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.arange(5, dtype=np.int8)}
    content = save(arrays)
    size = int.from_bytes(content[:8], "little")
    # Other writers of the format may not pad the header.
    shifted = (size + 1).to_bytes(8, "little") + content[8 : 8 + size] + b" " + content[8 + size :]
    (tmp_path / "arrays").write_bytes(shifted)
    with open(tmp_path / "arrays", "rb") as file:
        found = map_arrays(file.fileno())
    for name, array in arrays.items():
        assert found[name].flags.aligned
        assert np.array_equal(found[name], array)


ASK = """
import sys, beamwood
retriever = beamwood.load(sys.argv[1])
print("loaded", flush=True)
sys.stdin.readline()
retriever.recommend(users=range(200), k=5)
retriever.recommend(users=[1, 2, 3], k=5, where={"price": {"lte": 10}}, allowed={"category": "c1"})
print("asked", flush=True)
sys.stdin.read()
"""


def pages(process):
    """Memory of a process by kind: in total, and of its mapped weights."""
    rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
    mapped = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", Path(f"/proc/{process.pid}/smaps").read_text(), flags=re.M)
    weights = "".join(part for part in mapped if "weights.safetensors" in part.partition("\n")[0])

    def kinds(text):
        found = Counter()
        for name, size in re.findall(r"^(\w+): +(\d+) kB", text, re.M):
            found[name] += int(size) * 1024
        return found

    return kinds(rollup), kinds(weights)


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps_rollup"), reason="memory by kind is Linux's")
def test_processes_share_the_pages_of_a_folder(tmp_path):
    retriever_of(tree_searcher(60_000, width=32), num_users=200, text=False).save(tmp_path / "model")
    size = sum(file.stat().st_size for file in (tmp_path / "model").iterdir())
    command = [sys.executable, "-c", ASK, str(tmp_path / "model")]
    others = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    try:
        for each in others:
            assert line_of(each) == "loaded\n"
            # Almost nothing is read before it is needed.
            _, weights = pages(each)
            assert 0 < weights["Rss"] < 0.1 * size
            each.stdin.write("\n")
            each.stdin.flush()
        assert [line_of(each) for each in others] == ["asked\n"] * 3
        found = [pages(each) for each in others]
    finally:
        for each in others:
            each.communicate("", timeout=60)
    for whole, weights in found:
        assert whole["Anonymous"] <= 0.15 * size + 60 * 2**20
        # Each process has read much of the weights, written to none, and accounts for a third of them.
        assert weights["Rss"] > 2**20
        assert weights["Anonymous"] == weights["Private_Dirty"] == 0
        assert weights["Pss"] < 0.4 * weights["Rss"]


def test_mapped_arrays_survive_the_deletion_of_the_folder(tmp_path):
    path = tmp_path / "model"
    retriever_of(vector_searcher(300)).save(path)
    loaded = beamwood.load(path)
    expected = loaded.recommend(users=[5], k=9)
    retriever_of(vector_searcher(300, seed=3), seed=3).save(path, overwrite=True)
    assert loaded.recommend(users=[5], k=9) == expected
    assert beamwood.load(path).recommend(users=[5], k=9) != expected


def test_writes_to_mapped_arrays_stay_in_this_process(tmp_path):
    retriever_of(vector_searcher(300)).save(tmp_path / "model")
    arrays = read_artefact(tmp_path / "model").arrays("weights")
    before = arrays["vectors"].copy()
    arrays["vectors"][:] = 0
    assert np.array_equal(read_artefact(tmp_path / "model").arrays("weights")["vectors"], before)


def test_a_column_that_no_filter_can_use():
    with pytest.raises(InputError, match="the item column 'when' cannot be kept"):
        retriever_of(vector_searcher(3)).columns.of(pl.DataFrame({"when": [dt.timedelta(1)] * 3}))
    assert set(item_frame(20).columns) == {"category", "price", "brand", "stock", "since"}
