"""CITATION.cff follows the Citation File Format and describes this package."""

import re
import tomllib

import pytest
import yaml

import beamwood
from bare_environment import ROOT
from beamwood.methods import METHODS

CITED = yaml.safe_load((ROOT / "CITATION.cff").read_text())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# The used keys of version 1.2.0 of the format.
KEYS = {
    "cff-version",
    "message",
    "title",
    "abstract",
    "type",
    "authors",
    "version",
    "license",
    "keywords",
    "references",
}
REFERENCE_KEYS = {
    "article": {"type", "title", "authors", "year", "status", "identifiers", "notes"},
    "conference-paper": {
        "type",
        "title",
        "authors",
        "year",
        "collection-title",
        "conference",
        "doi",
        "identifiers",
        "notes",
    },
}


def test_it_has_the_required_keys():
    assert set(CITED) == KEYS
    assert CITED["cff-version"] == "1.2.0"
    assert CITED["type"] == "software"
    assert all(CITED[key] and isinstance(CITED[key], str) for key in ("message", "title", "abstract"))
    assert CITED["authors"] == [{"name": "The beamwood authors"}]


def test_it_describes_this_package():
    assert CITED["title"] == PROJECT["name"]
    assert str(CITED["version"]) == PROJECT["version"] == beamwood.__version__
    assert CITED["license"] == PROJECT["license"]
    assert CITED["keywords"] == PROJECT["keywords"]


@pytest.mark.parametrize("paper", CITED["references"], ids=lambda paper: paper["title"][:20])
def test_papers_are_complete(paper):
    assert set(paper) <= REFERENCE_KEYS[paper["type"]]
    assert paper["title"]
    assert isinstance(paper["year"], int)
    assert 2020 < paper["year"] < 2027
    assert all(set(author) == {"given-names", "family-names"} for author in paper["authors"])
    assert len(paper["authors"]) > 2
    assert re.fullmatch(r"10\.\d{4,}/\S+", paper.get("doi", "10.1000/none"))
    for identifier in paper.get("identifiers", ()):
        assert identifier["type"] == "other"
        assert re.fullmatch(r"arXiv:\d{4}\.\d{5}", identifier["value"])
    assert (paper["type"] == "conference-paper") == ("conference" in paper)


def test_the_five_papers_are_cited_with_their_methods():
    assert len(CITED["references"]) == 5
    named = {word for paper in CITED["references"] for word in re.findall(r"\w+", paper["notes"])}
    assert {"dtr", "tdm", "jtm", "otm", "plt", "din", "two_stage", "two_tower", "lpo4rec", "ranker"} <= named & set(
        METHODS
    )
