"""Draw what a search scores against the size of the catalogue: `python docs/figures/cost.py`.

Counted, not measured: the nodes that a beam scores in the tree that would be built. Writes cost.svg beside this file.
"""

import math
from pathlib import Path

from beamwood.tree import choose_shape

BRANCHING = 16
BEAMS = (150, 50)
SIZES = [round(10 ** (3 + step / 8)) for step in range(41)]
WIDTH, HEIGHT = 640, 330
LEFT, RIGHT, TOP, BOTTOM = 90, 450, 30, 270
SMALLEST, LARGEST = 2, 8
STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #24292f }
  .small { font-size: 11px; fill: #57606a }
  line { stroke: #d0d7de }
  polyline { fill: none; stroke-width: 2.5 }
  .every { stroke: #bc4c00 } text.every { stroke: none; fill: #bc4c00 }
  .beam150 { stroke: #1a7f64 } text.beam150 { stroke: none; fill: #1a7f64 }
  .beam50 { stroke: #1a7f64; stroke-dasharray: 6 4 } text.beam50 { stroke: none; fill: #1a7f64 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .small { fill: #9da7b1 }
    line { stroke: #3d444d }
    .every { stroke: #f0883e } text.every { fill: #f0883e }
    .beam150, .beam50 { stroke: #3fb98f } text.beam150, text.beam50 { fill: #3fb98f }
  }
"""


def scored(num_items: int, beam_width: int) -> int:
    """The nodes that a beam scores: the children of the kept ones, on levels that are larger than the beam."""
    shape = choose_shape(num_items, BRANCHING, "compact")
    levels = [shape.root_fanout * BRANCHING**level for level in range(shape.depth)]
    return sum(min(nodes, beam_width * BRANCHING) for nodes in levels if nodes > beam_width)


def place(num_items: float, count: float) -> tuple[float, float]:
    """Where a point stands; both axes are logarithmic."""
    x = LEFT + (math.log10(num_items) - 3) / 5 * (RIGHT - LEFT)
    y = BOTTOM - (math.log10(count) - SMALLEST) / (LARGEST - SMALLEST) * (BOTTOM - TOP)
    return x, y


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{words}</text>'


def axes() -> list[str]:
    """Lines and numbers: a thousand, a million, a hundred million."""
    parts = []
    names = {2: "100", 3: "1,000", 4: "10,000", 5: "100,000", 6: "1 million", 7: "10 million", 8: "100 million"}
    for power in range(SMALLEST, LARGEST + 1):
        _, y = place(1000, 10**power)
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{RIGHT}" y2="{y:.1f}"/>')
        parts.append(text(LEFT - 8, y + 4, names[power], "small", "end"))
    for power in (3, 4, 5, 6, 7, 8):
        parts.append(text(place(10**power, 1e3)[0], BOTTOM + 18, names[power], "small", "middle"))
    parts.append(text((LEFT + RIGHT) / 2, BOTTOM + 42, "items of the catalogue", "small", "middle"))
    return [*parts, text(LEFT - 60, TOP - 12, "scored for one question", "small")]


def curve(counts: list[int], kind: str, words: str) -> list[str]:
    """A line, and its name at the end of it."""
    points = [place(size, count) for size, count in zip(SIZES, counts, strict=True)]
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return [f'<polyline points="{joined}" class="{kind}"/>', text(RIGHT + 10, points[-1][1] + 4, words, kind)]


def drawing() -> str:
    """The whole picture as SVG."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="title">'
    title = '<title id="title">Scores for one question against the size of the catalogue.</title>'
    parts = curve(SIZES, "every", "every item")
    for beam in BEAMS:
        parts += curve([scored(size, beam) for size in SIZES], f"beam{beam}", f"a beam of {beam}")
    return "\n".join([head, title, f"<style>{STYLE}</style>", *axes(), *parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    Path(__file__).with_suffix(".svg").write_text(drawing(), encoding="utf-8")
