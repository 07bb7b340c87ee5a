"""Saved folders round-trip; invalid, damaged and foreign ones are refused with their name."""

import contextlib
import hashlib
import json
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from beamwood.artefact import FORMAT_VERSION, check_output, manifest, read_artefact, read_manifest, write_artefact
from beamwood.errors import ArtefactError
from damaged_folders import put_manifest

WEIGHTS = {
    "matrix": np.arange(12, dtype=np.float32).reshape(3, 4),
    "flags": np.array([True, False]),
    "scalar": np.array(7, np.int64),
    "empty": np.empty((0, 5), np.float64),
    "half": np.array([0.5, np.inf, np.nan], np.float16),
}
ITEMS = pl.DataFrame({"id": ["a", "ß", ""], "category": [1, None, 3]})


def save(path, *, overwrite=False, mark=1):
    write_artefact(
        path,
        manifest={"kind": "retriever", "method": "dtr", "config": {"k": np.int64(3)}, "metrics": {"f@20": 0.1 + 0.2}},
        arrays={
            "weights": {**WEIGHTS, "mark": np.full(4, mark)},
            "tree": {"leaf_of_item": np.arange(5, dtype=np.int32)},
        },
        tables={"items": ITEMS},
        texts={"notes.md": f"mark {mark}\n"},
        overwrite=overwrite,
    )


def test_threads_read_one_artefact(tmp_path):
    """Its open files have one position each, which threads would move under one another."""
    arrays, texts = {str(number): np.arange(3) for number in range(300)}, {"notes.md": "ab" * 1_000_000}
    write_artefact(tmp_path / "model", manifest={"kind": "x"}, arrays={"weights": arrays}, texts=texts)
    artefact = read_artefact(tmp_path / "model")

    def read(_):
        return len(artefact.text("notes.md")), len(artefact.arrays("weights"))

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(read, range(200))) == {(2_000_000, 300)}


def test_everything_round_trips(tmp_path):
    save(tmp_path / "deep" / "model")
    artefact = read_artefact(tmp_path / "deep" / "model", kind="retriever")
    found = artefact.arrays("weights")
    for name, array in WEIGHTS.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
    assert artefact.table("items").equals(ITEMS)
    assert artefact.text("notes.md") == "mark 1\n"
    assert artefact.manifest["config"] == {"k": 3}
    assert artefact.manifest["metrics"] == {"f@20": 0.1 + 0.2}
    assert artefact.manifest["files"]["weights.safetensors"]["arrays"]["matrix"] == {
        "dtype": "float32",
        "shape": [3, 4],
    }
    assert artefact.manifest["libraries"]["polars"] == pl.__version__
    assert artefact.names("arrays") == ["weights", "tree"]
    assert os.listdir(tmp_path / "deep") == ["model"]


@settings(max_examples=30, deadline=None)
@given(
    array=arrays_of.arrays(
        dtype=st.one_of(
            arrays_of.integer_dtypes(endianness="?"), arrays_of.floating_dtypes(endianness="?", sizes=(16, 32, 64))
        ),
        shape=arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5),
    ),
    transposed=st.booleans(),
)
def test_any_numeric_array_round_trips(tmp_path_factory, array, transposed):
    array = array.T if transposed else array
    path = tmp_path_factory.mktemp("any") / "model"
    write_artefact(path, manifest={"kind": "test"}, arrays={"w": {"x": array}})
    found = read_artefact(path).arrays("w")["x"]
    np.testing.assert_array_equal(found, array)
    assert found.shape == array.shape


def test_no_torch_is_imported(tmp_path):
    save(tmp_path / "model")
    code = (
        "import sys; from beamwood.artefact import read_artefact; a = read_artefact(sys.argv[1]);"
        "a.arrays('weights'); a.table('items'); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "model")], check=True)


def test_an_unknown_part_gets_a_suggestion(tmp_path):
    save(tmp_path / "model")
    artefact = read_artefact(tmp_path / "model")
    with pytest.raises(ArtefactError, match=r"retriever.*no arrays 'weight'; did you mean 'weights'"):
        artefact.arrays("weight")
    with pytest.raises(ArtefactError, match="no table 'weights'"):
        artefact.table("weights")


def test_replacing_needs_overwrite(tmp_path):
    save(tmp_path / "model")
    with pytest.raises(ArtefactError, match="already holds an artefact; pass --overwrite"):
        save(tmp_path / "model", mark=2)
    assert read_artefact(tmp_path / "model").text("notes.md") == "mark 1\n"
    save(tmp_path / "model", mark=2, overwrite=True)
    assert read_artefact(tmp_path / "model").text("notes.md") == "mark 2\n"
    assert os.listdir(tmp_path) == ["model"]


@pytest.mark.parametrize("content", [{"notes.txt": "mine"}, {"manifest.json": "{}"}, {"manifest.json": '{"format": 1'}])
def test_other_folders_are_never_replaced(tmp_path, content):
    folder = tmp_path / "model"
    folder.mkdir()
    for name, text in content.items():
        (folder / name).write_text(text)
    with pytest.raises(ArtefactError, match="not a beamwood artefact, so it is never replaced"):
        save(folder, overwrite=True)
    with pytest.raises(ArtefactError, match=r"manifest\.json"):
        read_artefact(folder)
    assert {p.name: p.read_text() for p in folder.iterdir()} == content


def test_a_foreign_file_in_an_artefact_is_not_lost(tmp_path):
    save(tmp_path / "model")
    (tmp_path / "model" / "thesis.tex").write_text("years of work")
    assert read_artefact(tmp_path / "model").text("notes.md")
    with pytest.raises(ArtefactError, match=r"'thesis\.tex'.*move it away"):
        save(tmp_path / "model", overwrite=True)


def test_invalid_outputs_are_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ArtefactError, match="is a file, not a folder"):
        check_output(tmp_path / "file", overwrite=True)
    with pytest.raises(ArtefactError, match=r"file is a file, so .* cannot be made"):
        check_output(tmp_path / "file" / "model")
    with pytest.raises(ArtefactError, match="name a folder inside it"):
        check_output("/")
    assert check_output(tmp_path / "new" / "model") == (tmp_path / "new" / "model").resolve()
    assert not (tmp_path / "new").exists()
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
    (tmp_path / "circle").symlink_to("circle")
    for path in (tmp_path / "circle", tmp_path / "circle" / "model"):
        with pytest.raises(ArtefactError, match="circle is a link that leads in a circle; remove it"):
            check_output(path)
    for wrong in (None, 3, b"model"):
        with pytest.raises(ArtefactError, match="is not a path; give the artefact's folder as text"):
            check_output(wrong)
        with pytest.raises(ArtefactError, match="is not a path"):
            read_artefact(wrong)


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="no /proc")
def test_a_file_system_without_new_folders_is_refused_in_advance():
    with pytest.raises(ArtefactError, match=r"could not be saved .*check that the folder can be written"):
        check_output("/proc/beamwood/model")


def test_an_empty_folder_and_a_link_are_accepted(tmp_path):
    (tmp_path / "empty").mkdir()
    save(tmp_path / "empty")
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    save(tmp_path / "link", mark=2, overwrite=True)
    assert (tmp_path / "link").is_symlink()
    assert read_artefact(tmp_path / "empty").text("notes.md") == "mark 2\n"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"metrics": {"f@20": float("nan")}}, r"manifest\['metrics'\]\['f@20'\] is nan"),
        ({"config": [object()]}, r"manifest\['config'\]\[0\] is a object"),
        ({"config": {1: 2}}, "has the key 1"),
        ({"log": "caf\udce9"}, r"manifest\['log'\] is 'caf\\udce9', which is not UTF-8"),
        ({"config": {"caf\udce9": 2}}, r"a key of manifest\['config'\] is 'caf\\udce9', which is not UTF-8"),
    ],
)
def test_a_manifest_json_cannot_hold(tmp_path, wrong, message):
    with pytest.raises(ArtefactError, match=message):
        write_artefact(tmp_path / "model", manifest={"kind": "test", **wrong})
    assert not list(tmp_path.iterdir())


def test_an_array_safetensors_cannot_hold(tmp_path):
    with pytest.raises(ArtefactError, match=r"w\.safetensors: the array 'ids' is object"):
        write_artefact(tmp_path / "m", manifest={"kind": "test"}, arrays={"w": {"ids": np.array(["a", 1], object)}})
    assert not list(tmp_path.iterdir())


def test_missing_and_wrong_kind(tmp_path):
    with pytest.raises(ArtefactError, match="does not exist; give the folder"):
        read_artefact(tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    with pytest.raises(ArtefactError, match="is a file, not an artefact"):
        read_artefact(tmp_path / "file")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ArtefactError, match=r"folder has no manifest\.json, so it is not a beamwood artefact"):
        read_artefact(tmp_path / "folder")
    save(tmp_path / "model")
    with pytest.raises(ArtefactError, match="holds a retriever, not a ranker"):
        read_artefact(tmp_path / "model", kind="ranker")


@pytest.mark.parametrize("name", ["weights.safetensors", "tree.safetensors", "items.parquet", "notes.md"])
def test_a_missing_file_is_named(tmp_path, name):
    save(tmp_path / "model")
    (tmp_path / "model" / name).unlink()
    with pytest.raises(ArtefactError, match=rf"{name} is missing"):
        read_artefact(tmp_path / "model")


@pytest.mark.parametrize("part", ["cut in half", "emptied", "one longer"])
@pytest.mark.parametrize(
    "name", ["manifest.json", "weights.safetensors", "tree.safetensors", "items.parquet", "notes.md"]
)
def test_a_truncated_file_is_named(tmp_path, name, part):
    save(tmp_path / "model")
    path = tmp_path / "model" / name
    content = path.read_bytes()
    path.write_bytes({"cut in half": content[: len(content) // 2], "emptied": b"", "one longer": content + b"x"}[part])
    with pytest.raises(ArtefactError, match=name):
        read_artefact(tmp_path / "model")


@pytest.mark.parametrize(
    "name", ["manifest.json", "weights.safetensors", "tree.safetensors", "items.parquet", "notes.md"]
)
def test_no_flipped_bit_passes(tmp_path, name):
    save(tmp_path / "model")
    path = tmp_path / "model" / name
    content = path.read_bytes()
    expected = read_manifest(tmp_path / "model")
    rng = np.random.default_rng(0)
    for position in rng.integers(len(content), size=60):
        flipped = bytearray(content)
        flipped[position] ^= 1 << int(rng.integers(8))
        path.write_bytes(flipped)
        if name == "manifest.json":
            # White space may change, the content may not.
            with contextlib.suppress(ArtefactError):
                assert read_manifest(tmp_path / "model") == expected
        else:
            with pytest.raises(ArtefactError, match=name):
                read_artefact(tmp_path / "model")


def rewrite_manifest(folder, change):
    """A manifest with a valid checksum, as by a newer or a malicious writer."""
    path = folder / "manifest.json"
    content = json.loads(path.read_bytes())
    change(content)
    content["checksum"] = manifest._checksum(content)
    path.write_text(json.dumps(content))


def test_a_newer_version_asks_for_an_upgrade(tmp_path):
    save(tmp_path / "model")
    rewrite_manifest(tmp_path / "model", lambda m: m.update(format_version=FORMAT_VERSION + 1, files={}, new=[]))
    with pytest.raises(ArtefactError, match=rf"format_version={FORMAT_VERSION + 1} is newer.*upgrade beamwood"):
        read_artefact(tmp_path / "model")
    save(tmp_path / "other")
    rewrite_manifest(tmp_path / "other", lambda m: m.update(format_version="one"))
    with pytest.raises(ArtefactError, match="format_version='one' is not a version"):
        read_artefact(tmp_path / "other")


@pytest.mark.parametrize("name", ["../secret.txt", "/etc/passwd", "a/b.txt", "..", ".", "", "a\x00b", "manifest.json"])
def test_names_cannot_refer_outside_the_folder(tmp_path, name):
    save(tmp_path / "model")
    (tmp_path / "secret.txt").write_text("secret")
    about = {"kind": "text", "size": 6, "sha256": manifest.digest(tmp_path / "secret.txt")[1]}
    rewrite_manifest(tmp_path / "model", lambda m: m["files"].update({name: about}))
    with pytest.raises(ArtefactError, match="not a plain name"):
        read_artefact(tmp_path / "model")


def test_a_shape_that_differs_from_the_manifest(tmp_path):
    save(tmp_path / "model")
    rewrite_manifest(
        tmp_path / "model", lambda m: m["files"]["weights.safetensors"]["arrays"]["matrix"].update(shape=[4, 3])
    )
    with pytest.raises(ArtefactError, match=r"'matrix' has shape \[3, 4\].*says \[4, 3\]"):
        read_artefact(tmp_path / "model")


def test_an_opened_artefact_is_read_completely_after_its_replacement(tmp_path):
    save(tmp_path / "model")
    old = read_artefact(tmp_path / "model")
    before = {name: array.copy() for name, array in read_artefact(tmp_path / "model").arrays("weights").items()}
    save(tmp_path / "model", mark=2, overwrite=True)
    assert old.text("notes.md") == "mark 1\n"
    assert all(array.tobytes() == before[name].tobytes() for name, array in old.arrays("weights").items())
    assert read_artefact(tmp_path / "model").text("notes.md") == "mark 2\n"


def test_a_file_changed_after_verification_is_refused(tmp_path):
    save(tmp_path / "model")
    opened = read_artefact(tmp_path / "model")
    (tmp_path / "model" / "notes.md").write_text("mark 9\n!")
    with pytest.raises(ArtefactError, match="was written to while it was being read; load the artefact again"):
        opened.text("notes.md")


@pytest.mark.parametrize("name", ["manifest.json", "weights.safetensors", "notes.md"])
@pytest.mark.parametrize("kind", ["pipe", "socket", "device"])
def test_non_regular_files_are_refused_at_once(tmp_path, monkeypatch, name, kind):
    save(tmp_path / "model")
    monkeypatch.chdir(tmp_path / "model")
    Path(name).unlink()
    if kind == "pipe":
        os.mkfifo(name)
    elif kind == "socket":
        socket.socket(socket.AF_UNIX).bind(name)
    else:
        Path(name).symlink_to("/dev/zero")
    with pytest.raises(ArtefactError, match=rf"{name} cannot be read.*not a regular file"):
        read_artefact(tmp_path / "model")
    with pytest.raises(ArtefactError):
        save(tmp_path / "model" / name)


def test_a_save_between_reading_manifest_and_files_is_consistent(tmp_path, monkeypatch):
    from beamwood.artefact import read

    save(tmp_path / "model")
    original, calls = read.read_manifest, []

    def slow(*args, **kwargs):
        found = original(*args, **kwargs)
        if not calls:
            calls.append(1)
            save(tmp_path / "model", mark=2, overwrite=True)
        return found

    monkeypatch.setattr(read, "read_manifest", slow)
    assert read_artefact(tmp_path / "model").text("notes.md") == "mark 2\n"


def test_number_types_that_numpy_lacks_are_refused(tmp_path):
    write_artefact(tmp_path / "model", manifest={"kind": "test"}, arrays={"w": {"x": np.zeros(2, np.float16)}})
    file = tmp_path / "model" / "w.safetensors"
    # The longer name uses one of the header's padding spaces.
    content = file.read_bytes().replace(b'"F16"', b'"BF16"').replace(b"}}  ", b"}} ")
    file.write_bytes(content)
    about = json.loads((tmp_path / "model" / "manifest.json").read_text())
    about["files"]["w.safetensors"] |= {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    put_manifest(tmp_path / "model", about)
    with pytest.raises(ArtefactError, match=r"w\.safetensors is not .*a type of number that numpy lacks: BF16"):
        read_artefact(tmp_path / "model").arrays("w")


def test_all_files_follow_the_umask(tmp_path):
    for umask in (0o022, 0o077, 0o002):
        before = os.umask(umask)
        try:
            write_artefact(
                tmp_path / f"{umask:o}",
                manifest={"kind": "test"},
                arrays={"weights": {"w": np.ones(2)}},
                tables={"items": pl.DataFrame({"id": [1]})},
                texts={"notes.md": "x"},
            )
        finally:
            os.umask(before)
        modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / f"{umask:o}").iterdir()}
        assert modes == dict.fromkeys(modes, 0o666 & ~umask)
        assert len(modes) == 4


def test_an_empty_path_is_not_the_current_folder(tmp_path, monkeypatch):
    write_artefact(tmp_path / "here", manifest={"kind": "test"})
    monkeypatch.chdir(tmp_path / "here")
    read_artefact(".")
    for touch in (read_artefact, read_manifest, check_output):
        with pytest.raises(ArtefactError, match="path='' is empty; name the artefact's folder"):
            touch("")
