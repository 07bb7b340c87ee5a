"""The format of figures, and of tables of figures."""

from collections.abc import Sequence

__all__ = ["EMPTY", "held", "markdown", "number", "p_value"]

EMPTY = "No run of the suite has been made for this table."


def markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (headings, ["---"] * len(headings), *rows))


def number(value: float, digits: int) -> str:
    """A number with this many decimals, commas between thousands, and no zero before the point."""
    text = f"{value:z,.{digits}f}"
    return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text


def held(holds: float) -> str:
    """Whether a bar holds, in a table."""
    return "yes" if holds else "**no**"


def p_value(p: float) -> str:
    """A p-value with two or three decimals, or as a power of ten if below .001."""
    if p >= 0.995:
        return "1"
    if p >= 0.001:
        return number(p, 2 if p >= 0.1 else 3)
    digit, _, power = f"{p:.0e}".partition("e")
    return f"{digit}e{int(power)}" if p > 0 else "0"
