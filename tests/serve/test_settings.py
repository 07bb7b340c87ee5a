"""The documented limits are those of the settings."""

import re
from dataclasses import fields

import pytest

from bare_environment import ROOT
from beamwood.errors import InputError
from beamwood.serve.settings import Limits, limits_of


def test_the_page_documents_every_limit():
    page = (ROOT / "docs/how-to/operate.md").read_text()
    told = dict(re.findall(r"^\| `(\w+)` \| (\d+\w*) \|", page, re.MULTILINE))
    assert told.keys() == {each.name for each in fields(Limits)} - {"new_item_share"}
    for name, value in told.items():
        assert limits_of([f"{name}={value}"]) == Limits(), name


@pytest.mark.parametrize(
    ("given", "said"), [("kk=3", "'k'"), ("k=0", "above 0"), ("k=many", "k=1000"), ("idle_seconds=5", "5s")]
)
def test_invalid_limits_are_refused(given, said):
    with pytest.raises(InputError, match=said):
        limits_of([given])
