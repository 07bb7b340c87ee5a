"""Text files that hold a log in another shape than a row of a user and an item: what to type to make rows of them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from beamwood.data.files.layout import CANDIDATES, fields_of
from beamwood.data.header import is_time, seem_values
from beamwood.errors import InputError

__all__ = ["OtherShapeError", "refuse_other_shapes"]

_FEW_LENGTHS, _LONG, _WIDE = 3, 6, 20
_BLOCK, _WHOLE, _NUMBER = r"\d+:", r"\d{1,18}", r"\s*[+-]?\d*\.?\d*\s*"


class OtherShapeError(InputError):
    """A text file without one row a line; the message ends with the command that converts it."""


def refuse_other_shapes(path: Path, lines: Sequence[str], separator: str | None, quote: str | None) -> None:
    """Errors: blocks of lines below an item; lists in lines; a matrix of users and items; each with the fix.

    `separator`: None where it is not known.
    """
    file = shlex.quote(str(path))
    if lines and re.fullmatch(_BLOCK, lines[0].strip()) and any("," in line for line in lines):
        raise OtherShapeError(
            f"{path}: lines such as {lines[0].strip()!r} seem to name the item of the lines below; write it in each, "
            f'as with: awk \'BEGIN {{print "item_id,user_id,rating,date"}} /:/ {{sub(/:.*/, ""); item = $0; next}} '
            f'{{print item "," $0}}\' {file} > log.csv'
        )
    for mark in (*CANDIDATES, " ") if separator is None else (separator,):
        rows = fields_of(lines, mark, quote)
        lengths = {len(row) for row in rows}
        if not rows or not seem_values(rows[0]):
            continue
        if (len(lengths) > _FEW_LENGTHS and min(lengths) > 1) or _are_even_lists(rows, mark):
            raise OtherShapeError(
                f"{path}: its lines have {_range(lengths)} values between {mark!r}, as if each were a user and the "
                "items taken; write a line for each user and item, as with: "
                f"awk -F'{_in_awk(mark)}' 'BEGIN {{print \"user_id,item_id\"}} "
                f'{{for (i = 2; i <= NF; i++) print $1 "," $i}}\' {file} > log.csv'
            )
        if len(rows[0]) > _WIDE and all(re.fullmatch(_NUMBER, cell) for row in rows for cell in row):
            raise OtherShapeError(
                f"{path}: its lines have {len(rows[0])} numbers, as a matrix of users and items; write a row for each "
                f"value that is one, as with: awk -F'{_in_awk(mark)}' 'BEGIN {{print \"user_id,item_id,rating\"}} "
                f'{{for (i = 1; i <= NF; i++) if ($i != "") print NR "," i "," $i}}\' {file} > log.csv'
            )


def _are_even_lists(rows: Sequence[Sequence[str]], mark: str) -> bool:
    """Whether all lines are long rows of blank-separated integers, none of them a time, and so lists."""
    if mark != " " or min(map(len, rows)) < _LONG:
        return False
    return all(re.fullmatch(_WHOLE, cell) and not is_time(cell) for row in rows for cell in row)


def _range(numbers: set[int]) -> str:
    return f"{min(numbers)} to {max(numbers)}" if len(numbers) > 1 else str(min(numbers))


def _in_awk(mark: str) -> str:
    return {"\t": "\\t", "|": "[|]"}.get(mark, mark)
