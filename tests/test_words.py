"""One thing has one word: what the glossary rules out stands nowhere in code, messages, help and pages."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
GLOSSARY = ROOT / "docs" / "glossary.md"
# What tells of our own past may use the words of then.
PAGES = [ROOT / "README.md", *(path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "lab")]


def ruled_out():
    rows = [line.split("|") for line in GLOSSARY.read_text().splitlines() if line.startswith("| ")][2:]
    return [word.strip() for row in rows for word in row[3].split(",") if word.strip()]


def test_the_glossary_is_read():
    assert {"consumed", "asker", "renewal"} <= set(ruled_out())


def test_what_it_rules_out_stands_nowhere():
    words = re.compile("|".join(rf"\b{word}" for word in ruled_out()), re.IGNORECASE)
    for path in [*(ROOT / "src").rglob("*.py"), *PAGES]:
        if path in (GLOSSARY, ROOT / "docs" / "cards.md"):
            continue
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            found = words.search(line)
            assert found is None, f"{path.relative_to(ROOT)}:{number} says '{found[0]}': {line.strip()}"
