"""The site builds without a warning and contains the generated content."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import beamwood.testing

pytest.importorskip("sphinx", reason="the site needs the extra docs: pip install 'beamwood[docs]'")
pytest.importorskip("myst_parser", reason="the site needs the extra docs: pip install 'beamwood[docs]'")
pytest.importorskip("furo", reason="the site needs the extra docs: pip install 'beamwood[docs]'")

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    built = subprocess.run(
        [*command, "-d", str(out / "doctrees"), str(ROOT / "docs"), str(out / "html")],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return out / "html"


@pytest.mark.slow
def test_the_site_builds_without_a_warning(site):
    assert "tree of all items" in (site / "index.html").read_text()


@pytest.mark.slow
def test_the_site_has_settings_commands_and_docstrings(site):
    assert "tree.branching" in (site / "methods" / "dtr.html").read_text()
    assert "--boundary-column" in (site / "reference" / "command-line.html").read_text()
    page = (site / "reference" / "api.html").read_text()
    assert 'id="beamwood.retrieval.retriever.Retriever.recommend"' in page
    assert "problematic" not in page
    assert "mailto:" not in page


def test_the_reference_has_every_contract():
    text = (ROOT / "docs" / "reference" / "api.md").read_text()
    assert [name for name in beamwood.testing.__all__ if f"beamwood.testing.{name}\n" not in text] == []


def test_docstrings_become_plain_markup(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    from generated import plain_docstring

    lines = ["One `a * b` and **options of f@20:", "", "    x = 1", "", ">>> f(1)", "2", "Then", ""]
    assert plain_docstring(lines) == [
        "One ``a * b`` and \\*\\*options of f\\@20:", "", "::", "", "    x = 1", "", ">>> f(1)", "2", "Then", "",
    ]  # fmt: skip
