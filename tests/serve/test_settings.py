"""The documented limits are those of the settings."""

import re
from dataclasses import fields

import pytest

from bare_environment import ROOT
from beamwood.cli.limits import parse_limits
from beamwood.errors import InputError
from beamwood.serve.settings import Limits, ServeSettings


def test_the_page_documents_every_limit():
    page = (ROOT / "docs/how-to/operate.md").read_text()
    told = dict(re.findall(r"^\| `(\w+)` \| (\d+\w*) \|", page, re.MULTILINE))
    assert told.keys() == {each.name for each in fields(Limits)} - {"new_item_share"}
    for name, value in told.items():
        assert parse_limits([f"{name}={value}"]) == Limits(), name


@pytest.mark.parametrize(
    ("given", "said"), [("kk=3", "'k'"), ("k=0", "above 0"), ("k=many", "k=1000"), ("idle_seconds=5d", "500ms")]
)
def test_invalid_limits_are_refused(given, said):
    with pytest.raises(InputError, match=said):
        parse_limits([given])


def test_a_limit_is_given_once():
    with pytest.raises(InputError, match="--limit k is given twice; give it once"):
        parse_limits(["k=5", "k=6"])


@pytest.mark.parametrize("origin", ["*", "https://shop.example", "http://localhost:3000", "http://[::1]:80", "app://x"])
def test_origins_are_taken(origin):
    assert ServeSettings(cors=(origin,)).cors == (origin,)


@pytest.mark.parametrize(
    "text",
    ["shop.example", "https://shop.example/", "https://Shop.example", "https://*", "null", "http://a b", "http://"],
)
def test_what_no_page_has_as_its_origin_is_refused(text):
    with pytest.raises(InputError, match="is not an origin; write https://shop"):
        ServeSettings(cors=(text,))
