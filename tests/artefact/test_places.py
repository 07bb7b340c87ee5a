"""Places where a folder or a file is saved: mount points, long names, closed folders, and links."""

import os

import pytest

from beamwood.artefact import check_output, write_artefact
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
