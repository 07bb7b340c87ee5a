"""The HTML report holds what it was given, escaped, and loads nothing from elsewhere."""

import re
from html.parser import HTMLParser

from beamwood.evaluation.report import html_report

VOID = {"meta", "line", "polyline", "br"}


class Balanced(HTMLParser):
    """Fails on tags that close what is not open."""

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attributes):
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag


def view(value):
    return {
        "metrics": {"f@20": value},
        "interval_95": {"f@20": [value - 0.01, value + 0.01]},
        "protocol": {"seen": "left in", "queries": 9, "candidates": "all", "tail_rule": "bottom 20 %"},
    }


def test_page_is_whole_and_self_contained():
    test = {
        "baseline": "tree",
        "rival": "<script>",
        "difference": {"mean": 0.1, "low": 0.05, "high": 0.15},
        "adjusted": {"paired t": 0.012},
    }
    page = html_report(
        title="a & b",
        results={"tree": {"kept": view(0.3)}, "<script>": {"kept": view(0.2)}},
        tests={"kept": [test]},
        curve=[
            {"step": 1, "loss": 2.0},
            {"step": 2, "loss": 1.0, "valid/removed/f@20": 0.1},
            {"step": 3, "valid/removed/f@20": 0.2},
        ],
        facts={"conclusion": "the tree wins", "seed": 3},
    )
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    assert "<script>" not in page
    assert not re.search(r"(src|href)=", page)
    for text in (
        "0.3000",
        "0.2900 to 0.3100",
        "+0.1000",
        "0.012",
        "the tree wins",
        "seed: 3",
        "bottom 20 %",
        "a &amp; b",
    ):
        assert text in page
    assert page.count("<polyline") == 2
