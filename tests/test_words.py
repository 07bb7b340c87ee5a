"""One term for each concept, short sentences, and pages about the present: in code, messages, help and pages."""

import ast
import re
from pathlib import Path

import pytest

from prose import docstring_sentences, sentences

ROOT = Path(__file__).parents[1]
GLOSSARY = ROOT / "docs" / "reference" / "glossary.md"
# Pages that describe the project's history may use earlier terms.
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "lab"),
]
# Rendered sentences may contain figures.
RENDERED = sorted((ROOT / "benchmarks").rglob("*.md"))
MOST_WORDS = 25
# Equations, shapes and lists of errors make sentences in docstrings longer.
MOST_IN_DOCSTRINGS = 30


def name(path):
    return str(path.relative_to(ROOT))


def ruled_out():
    rows = [line.split("|") for line in GLOSSARY.read_text().splitlines() if line.startswith("| ")][2:]
    return [word.strip() for row in rows for word in row[3].split(",") if word.strip()]


def test_the_glossary_is_read():
    assert {"consumed", "asker", "renewal"} <= set(ruled_out())


def test_excluded_terms_are_not_used():
    words = re.compile("|".join(rf"\b{word}" for word in ruled_out()), re.IGNORECASE)
    for path in [*(ROOT / "src").rglob("*.py"), *PAGES, *RENDERED]:
        if path == GLOSSARY:
            continue
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            found = words.search(line)
            assert found is None, f"{name(path)}:{number} says '{found[0]}': {line.strip()}"


def test_sentences_are_found_in_markdown():
    page = "# A title\n\nOne `a b c` two. Three\n[four five](six) seven?\n\n- eight\n- nine\n```sh\nten\n```\n| ten |\n"
    found = [" ".join(words) for _, words in sentences(page)]
    assert found == ["A title", "One Code two.", "Three four five seven?", "eight", "nine"]


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_sentences_are_short(path):
    long = [
        f"{name(path)}:{line} has {len(words)} words: {' '.join(words)}"
        for line, words in sentences(path.read_text())
        if len(words) > MOST_WORDS
    ]
    assert not long, "\n".join(long)


def test_sentences_of_docstrings_are_short():
    long = []
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            text = ast.get_docstring(node) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) else None
            long += [
                f"{name(path)}: {' '.join(words)}"
                for words in docstring_sentences(text or "")
                if len(words) > MOST_IN_DOCSTRINGS
            ]
    assert not long, "\n".join(long)


@pytest.mark.parametrize("path", [*PAGES, *RENDERED], ids=name)
def test_pages_do_not_describe_the_project_history(path):
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        found = re.search(r"since then|before that|a script|a patch", line, re.IGNORECASE)
        assert found is None, f"{name(path)}:{number} says '{found[0]}'"


def test_first_pages_are_short():
    assert len((ROOT / "README.md").read_text().split()) <= 600
    changes = (ROOT / "CHANGELOG.md").read_text().splitlines()
    assert len(changes) <= 60
    assert [line.split()[1] for line in changes if line.startswith("## ")] == ["[0.1.0]"]
    for page in ("CONTRIBUTING.md", "SECURITY.md"):
        assert len((ROOT / page).read_text().splitlines()) <= 10
