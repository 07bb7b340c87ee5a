"""Places where a folder or a file is saved: mount points, long names, closed folders, and links."""

import errno
import io
import os

import pytest

from beamwood.artefact import check_output, read_artefact, write_artefact
from beamwood.artefact.replace import check_writable, whole_file
from beamwood.errors import ArtefactError


def save(path, *, overwrite=False):
    write_artefact(path, manifest={"kind": "test"}, texts={"notes.txt": "1"}, overwrite=overwrite)


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_mount_point_is_refused_before_a_fit(tmp_path, monkeypatch, overwrite):
    save(tmp_path / "model")
    (tmp_path / "link").symlink_to("model")
    monkeypatch.setattr(os.path, "ismount", lambda path: str(path) == str(tmp_path / "model"))
    for path in (tmp_path / "model", tmp_path / "link"):
        with pytest.raises(ArtefactError, match="model is a mount point, which cannot be replaced; name a folder in"):
            check_output(path, overwrite=overwrite)
    assert check_output(tmp_path / "model2") == tmp_path / "model2"


@pytest.fixture
def closed(tmp_path, monkeypatch):
    """A folder that this user may not enter; the tests may run as root, whom no permission stops."""
    folder = tmp_path / "closed"
    folder.mkdir()

    def guarded(function, *, itself):
        def call(path=".", *arguments, **options):
            name = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
            if name.startswith(f"{folder}/") or (itself and name == str(folder)):
                raise PermissionError(errno.EACCES, "Permission denied", name)
            return function(path, *arguments, **options)

        return call

    for name in ("stat", "lstat", "open", "mkdir"):
        monkeypatch.setattr(os, name, guarded(getattr(os, name), itself=False))
    monkeypatch.setattr(os, "listdir", guarded(os.listdir, itself=True))
    return folder


def test_a_model_in_a_folder_that_may_not_be_entered(closed):
    for path in (closed / "model", closed / "deep" / "model"):
        with pytest.raises(ArtefactError, match=r"model may not be opened \(Permission denied\); ask its owner for"):
            read_artefact(path)
        with pytest.raises(ArtefactError, match="Permission denied"):
            check_output(path)


@pytest.mark.parametrize(("name", "calls"), [("manifest.json", (io, "open")), ("notes.txt", (os, "open"))])
def test_a_file_that_is_for_others_is_not_said_to_be_damaged(tmp_path, monkeypatch, name, calls):
    """Saving it again would not help a service that runs as another user."""
    save(tmp_path / "model")
    opened = getattr(*calls)

    def guarded(path, *arguments, **options):
        if os.fspath(path) == str(tmp_path / "model" / name):
            raise PermissionError(errno.EACCES, "Permission denied", os.fspath(path))
        return opened(path, *arguments, **options)

    monkeypatch.setattr(*calls, guarded)
    with pytest.raises(
        ArtefactError, match=rf"{name} may not be opened \(Permission denied\); ask its owner for access"
    ):
        read_artefact(tmp_path / "model")


def test_a_name_that_is_too_long_is_no_artefact(tmp_path):
    for path in (tmp_path / ("a" * 300), tmp_path / ("a" * 300) / "model"):
        with pytest.raises(ArtefactError, match="does not exist; give the folder that"):
            read_artefact(path)
        with pytest.raises(ArtefactError, match="File name too long"):
            check_output(path)
    # A similar name is there, and the rest below it is too long.
    (tmp_path / "model").mkdir()
    with pytest.raises(ArtefactError, match="does not exist; give the folder that"):
        read_artefact(tmp_path / "modle" / ("a" * 300))


def test_a_file_is_written_to_where_a_link_leads(tmp_path):
    (tmp_path / "shared").mkdir()
    link, file = tmp_path / "latest.csv", tmp_path / "shared" / "recs.csv"
    link.symlink_to("shared/recs.csv")
    for text in ("new", "replaced"):
        check_writable(link)
        with whole_file(link) as fresh:
            assert fresh.parent == file.parent
            fresh.write_text(text)
        assert link.is_symlink()
        assert file.read_text() == text
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["latest.csv", "recs.csv", "shared"]
    link.unlink()
    link.symlink_to("nowhere/recs.csv")
    with pytest.raises(FileNotFoundError):
        check_writable(link)
