"""Draw the tree, the beam that searches it and the list that comes out: `python docs/figures/tree.py`.

Writes tree.svg beside this file. Colours follow the reader's light or dark screen.
"""

from pathlib import Path

BRANCHING, DEPTH, BEAM = 3, 3, 2
# What the model likes best: of each level the nodes that a beam of two keeps, by their place on the level.
KEPT = [[0], [0, 2], [1, 7], [4, 21, 3]]
WIDTH, HEIGHT = 820, 330
LEFT, RIGHT, TOP, STEP = 170, 640, 66, 68
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #24292f }
  .small { font-size: 11.5px; fill: #57606a }
  .head { font-weight: 600 }
  line { stroke: #d0d7de; stroke-width: 1 }
  line.kept { stroke: #1a7f64; stroke-width: 2.5 }
  circle { fill: #eaeef2; stroke: #c4ccd4 }
  circle.scored { fill: #b9e4d5; stroke: #1a7f64 }
  circle.kept { fill: #1a7f64; stroke: #1a7f64 }
  rect { fill: #fff8e6; stroke: #bf8700 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .small { fill: #9da7b1 }
    line { stroke: #3d444d }
    line.kept { stroke: #3fb98f }
    circle { fill: #262c36; stroke: #4a525c }
    circle.scored { fill: #1c4a3c; stroke: #3fb98f }
    circle.kept { fill: #3fb98f; stroke: #3fb98f }
    rect { fill: #33290f; stroke: #d29922 }
  }
"""


def place(level: int, node: int) -> tuple[float, float]:
    """Where a node stands: the nodes of a level share the width evenly."""
    share = (RIGHT - LEFT) / BRANCHING**level
    return LEFT + share * (node + 0.5), TOP + STEP * level


def scored(level: int, node: int) -> bool:
    """Is a node looked at: is its parent kept?"""
    return level == 0 or node // BRANCHING in KEPT[level - 1][:BEAM]


def kind(level: int, node: int) -> str:
    """How a node is drawn."""
    return "kept" if node in KEPT[level] else "scored" if scored(level, node) else "left"


def label(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" class="{kind}">{words}</text>'


def tree() -> list[str]:
    """The edges, and over them the nodes."""
    edges, nodes = [], []
    for level in range(DEPTH + 1):
        for node in range(BRANCHING**level):
            x, y = place(level, node)
            drawn = kind(level, node)
            if level:
                up_x, up_y = place(level - 1, node // BRANCHING)
                edges.append(f'<line x1="{up_x:.1f}" y1="{up_y}" x2="{x:.1f}" y2="{y}" class="{drawn}"/>')
            nodes.append(f'<circle cx="{x:.1f}" cy="{y}" r="{8 - level:g}" class="{drawn}"/>')
    # What is kept lies above what is not.
    edges.sort(key=lambda line: "kept" in line)
    return edges + nodes


def history() -> list[str]:
    """The query: what a user took, oldest first."""
    parts = [label(12, 40, "a user's history", "head")]
    for row, item in enumerate(("kettle", "teapot", "green tea")):
        parts.append(f'<rect x="12" y="{56 + 34 * row}" width="104" height="26" rx="5"/>')
        parts.append(label(64, 73.5 + 34 * row, item, anchor="middle"))
    return [*parts, label(12, 182, "the model scores", "small"), label(12, 198, "history and node", "small")]


def answer() -> list[str]:
    """The best leaves, in order."""
    parts = [label(672, 40, "the list", "head")]
    for row, item in enumerate(("tea strainer", "honey", "cups")):
        parts.append(f'<rect x="672" y="{56 + 34 * row}" width="136" height="26" rx="5"/>')
        parts.append(label(684, 73.5 + 34 * row, f"{row + 1}. {item}"))
    return [*parts, label(672, 182, "the best leaves,", "small"), label(672, 198, "each holds one item", "small")]


def legend() -> list[str]:
    """What the three colours mean, and how much was looked at."""
    every = [(level, node) for level in range(1, DEPTH + 1) for node in range(BRANCHING**level)]
    looked = sum(scored(*one) for one in every)
    words = [("kept", "kept: the beam, or the answer"), ("scored", "scored"), ("left", "never looked at")]
    parts = []
    for (drawn, text), x in zip(words, (170, 390, 480), strict=True):
        parts += [f'<circle cx="{x + 6}" cy="302" r="6" class="{drawn}"/>', label(x + 20, 306.5, text, "small")]
    return [*parts, label(672, 306.5, f"{looked} of {len(every)} nodes", "small")]


def drawing() -> str:
    """The whole picture as SVG."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="title">'
    title = '<title id="title">A beam of two walks down a tree of items; the best leaves are the list.</title>'
    top = label((LEFT + RIGHT) / 2, 40, "the tree of all items", "head", "middle")
    parts = [head, title, f"<style>{STYLE}</style>", *tree(), top, *history(), *answer(), *legend(), "</svg>"]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    Path(__file__).with_suffix(".svg").write_text(drawing(), encoding="utf-8")
