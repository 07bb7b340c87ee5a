"""Links lead to existing files and headings, and pictures equal the output of their programs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from prose import anchors, links

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_existing_targets(page):
    for line, address in links(page.read_text()):
        if re.match(r"https?://|mailto:", address):
            continue
        file, _, anchor = address.partition("#")
        target = page if not file else (page.parent / file).resolve()
        assert target.is_relative_to(ROOT), f"{page.name}:{line} leaves the project: {address}"
        assert target.exists(), f"{page.name}:{line} leads nowhere: {address}"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target.read_text()), f"{page.name}:{line} names no heading: {address}"


def test_every_page_is_in_the_table_of_contents():
    docs = ROOT / "docs"
    listed = set()
    for index in (docs / "index.md", docs / "methods" / "index.md"):
        for block in re.findall(r"```\{toctree\}\n(.*?)```", index.read_text(), re.DOTALL):
            names = [line for line in block.splitlines() if line and not line.startswith(":")]
            listed |= {(index.parent / f"{name}.md").resolve() for name in names}
    assert set(docs.rglob("*.md")) == listed | {docs / "index.md"}


@pytest.mark.parametrize("program", sorted((ROOT / "docs" / "figures").glob("*.py")), ids=lambda path: path.stem)
def test_pictures_equal_the_output_of_their_programs(program, tmp_path):
    copy = tmp_path / program.name
    copy.write_bytes(program.read_bytes())
    subprocess.run([sys.executable, str(copy)], check=True, env={"PYTHONPATH": str(ROOT / "src")})
    assert copy.with_suffix(".svg").read_text() == program.with_suffix(".svg").read_text()
