"""Parses Markdown pages for tests: sentences, links and fenced examples."""

import re
from dataclasses import dataclass

_FENCE = re.compile(r"^\s*(`{3,}|~{3,}|:{3,})(.*)$")
_NEW_BLOCK = re.compile(r"^\s*([-*+]|\d+\.)\s+")
_SENTENCE_ENDS = re.compile(r"(?<=[.?!])[)\"']?\s+(?=[\"'(]?[A-Z0-9])")


@dataclass(frozen=True)
class Fenced:
    """A fenced block: its first and last line, its language, and its text."""

    line: int
    end: int
    language: str
    text: str


def fenced(text):
    """The fenced blocks of a page, in order; nested blocks belong to the text of the outer one."""
    blocks, opened, inside = [], None, []
    for number, line in enumerate(text.splitlines(), start=1):
        mark = _FENCE.match(line)
        if opened is None:
            if mark:
                opened, inside = (number, mark[1], mark[2].strip()), []
        elif mark and mark[1].startswith(opened[1]) and not mark[2].strip():
            blocks.append(Fenced(opened[0], number, opened[2], "\n".join(inside) + "\n"))
            opened = None
        else:
            inside.append(line)
    assert opened is None, f"line {opened[0]}: the block has no end"
    return blocks


def without_fences(text):
    """The lines of a page, with those of fenced blocks emptied."""
    lines = text.splitlines()
    for block in fenced(text):
        lines[block.line - 1 : block.end] = [""] * (block.end - block.line + 1)
    return lines


def sentences(text):
    """The line and the words of each sentence in prose, lists and headings, without code, tables, comments and URLs."""
    text = re.sub(r"<!--.*?-->", lambda comment: re.sub(r"[^\n]", "", comment[0]), text, flags=re.DOTALL)
    blocks, block = [], []
    for number, line in enumerate(without_fences(text), start=1):
        apart = not line.strip() or line.startswith(("|", "#", "    ")) or _NEW_BLOCK.match(line)
        if apart and block:
            blocks.append(block)
            block = []
        if line.strip() and not line.startswith(("|", "    ")):
            block.append((number, _NEW_BLOCK.sub("", line).strip("# ")))
            if line.startswith("#"):
                blocks.append(block)
                block = []
    for lines in filter(None, [*blocks, block]):
        plain = _plain(" ".join(line for _, line in lines))
        yield from ((lines[0][0], sentence.split()) for sentence in _SENTENCE_ENDS.split(plain))


def docstring_sentences(text):
    """The sentences of a docstring, without code and equations, split at colons and semicolons too."""
    for block in re.split(r"\n\s*\n", text):
        if not block.startswith("    ") and not block.lstrip().startswith((">>>", "Shape legend")):
            plain = re.sub(r"`[^`]*`", "Code", " ".join(block.split()))
            yield from (part.split() for part in re.split(rf"{_SENTENCE_ENDS.pattern}|[:;] ", plain) if part)


def _plain(text):
    """The text with code as one word and links as their text."""
    text = re.sub(r"\{[\w:-]+\}`([^`<]*)(<[^`]*>)?`", r"\1", text)
    text = re.sub(r"`[^`]*`", "Code", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"[*_]{1,2}(\S[^*_]*)[*_]{1,2}", r"\1", text)


def links(text):
    """The line and the address of each link and image outside code."""
    for number, line in enumerate(without_fences(text), start=1):
        for found in re.finditer(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", line)):
            yield number, found[1]


def anchors(text):
    """The anchors of a page, one for each heading."""
    heads = [line.lstrip("# ") for line in without_fences(text) if line.startswith("#")]
    return {re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", head.lower()).strip()) for head in heads}
