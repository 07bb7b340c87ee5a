"""Downloads by name are verified, converted and complete, or give one error; archives here are synthetic."""

import dataclasses
import functools
import hashlib
import http.server
import io
import threading
import zipfile

import pytest

from beamwood.data import Dataset, read_log
from beamwood.data.public import PUBLIC_SETS, fetch
from beamwood.errors import InputError

MEMBERS = {
    "ml-1m": {
        "ml-1m/ratings.dat": "1::20::5::101\n1::10::3::100\n2::20::4::7\n",
        "ml-1m/movies.dat": '10::Amélie: the film (2001)::Comedy|Drama\n20::"Quoted" (1995)::Action\n',
    },
    "ml-100k": {
        "ml-100k/u.data": "1\t20\t5\t101\n1\t10\t3\t100\n2\t20\t4\t7\n",
        "ml-100k/u.genre": "Action|0\nComedy|1\nDrama|2\n\n",
        "ml-100k/u.item": '10|Amélie: the film (2001)|01-Jan-2001||http://x|0|1|1\n20|"Quoted" (1995)||||1|0|0\n',
    },
}


def archive(name):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as opened:
        for member, text in MEMBERS[name].items():
            opened.writestr(member, text.encode("latin-1"))
    return buffer.getvalue()


def placed(folder, name, content=None):
    """The data sets, with `name` served from a synthetic file."""
    content = archive(name) if content is None else content
    (folder / f"{name}.zip").write_bytes(content)
    url = (folder / f"{name}.zip").as_uri()
    return {name: dataclasses.replace(PUBLIC_SETS[name], url=url, sha256=hashlib.sha256(content).hexdigest())}


@pytest.mark.parametrize("name", MEMBERS)
def test_fetched_files_are_a_dataset(name, tmp_path):
    told = []
    files = fetch(name, tmp_path / "out", on_progress=lambda *at: told.append(at), known=placed(tmp_path, name))
    data = Dataset.from_log(read_log(files.interactions), files.items)
    assert [data.items.decode(row) for row in data.histories] == [[10, 20], [20]]
    assert data.item_table.category_labels.to_list() == ["Comedy|Drama", "Action"]
    assert data.item_table.frame["title"].to_list() == ["Amélie: the film (2001)", '"Quoted" (1995)']
    assert told[-1] == (len(archive(name)), len(archive(name)))
    terms = (files.items.parent / "TERMS.txt").read_text()
    assert "no redistribution" in terms
    assert "Harper" in terms
    assert sorted(path.name for path in files.items.parent.iterdir()) == [
        "TERMS.txt",
        "interactions.parquet",
        "items.parquet",
    ]


def test_others_may_read_what_is_fetched(tmp_path):
    """As far as the umask says so, as with any file that a program writes."""
    files = fetch("ml-1m", tmp_path / "out", known=placed(tmp_path, "ml-1m"))
    (tmp_path / "plain").touch()
    usual = (tmp_path / "plain").stat().st_mode
    assert [path.stat().st_mode for path in (files.interactions, files.items)] == [usual, usual]


def test_an_existing_data_set_is_not_fetched_again(tmp_path):
    known = placed(tmp_path, "ml-1m")
    first = fetch("ml-1m", tmp_path, known=known)
    (tmp_path / "ml-1m.zip").unlink()
    assert fetch("ml-1m", tmp_path, known=known) == first


def test_over_http(tmp_path):
    known = placed(tmp_path, "ml-1m")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=tmp_path))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        served = {"ml-1m": dataclasses.replace(known["ml-1m"], url=f"{address}/ml-1m.zip")}
        assert fetch("ml-1m", tmp_path / "out", known=served).items.exists()
        gone = {"ml-1m": dataclasses.replace(known["ml-1m"], url=f"{address}/gone.zip")}
        with pytest.raises(InputError, match=r"ml-1m cannot be fetched from .*gone\.zip: .*not found"):
            fetch("ml-1m", tmp_path / "other", known=gone)
    finally:
        server.shutdown()
        server.server_close()
    offline = {"ml-1m": dataclasses.replace(known["ml-1m"], url=f"{address}/ml-1m.zip")}
    with pytest.raises(InputError, match=r"cannot be fetched .*refused; check the connection") as raised:
        fetch("ml-1m", tmp_path / "other", known=offline)
    assert "\n" not in str(raised.value)


def test_wrong_content_leaves_nothing(tmp_path):
    known = placed(tmp_path, "ml-1m")
    changed = {"ml-1m": dataclasses.replace(known["ml-1m"], sha256="0" * 64)}
    with pytest.raises(InputError, match=r"SHA-256 [0-9a-f]{64}, expected 0000"):
        fetch("ml-1m", tmp_path / "out", known=changed)
    with pytest.raises(InputError, match="unexpected layout"):
        fetch("ml-1m", tmp_path / "out", known=placed(tmp_path, "ml-1m", b"no archive"))
    assert not (tmp_path / "out").exists()


def test_unknown_name(tmp_path):
    with pytest.raises(InputError, match=r"'ml1m' is unknown; did you mean 'ml-1m'\?"):
        fetch("ml1m", tmp_path)


@pytest.mark.parametrize("wrong", [{"name": 5}, {"folder": None}])
def test_arguments_of_other_types_are_named(tmp_path, wrong):
    with pytest.raises(InputError, match=f"{next(iter(wrong))}=.* does not fit"):
        fetch(**({"name": "ml-1m", "folder": tmp_path} | wrong))
