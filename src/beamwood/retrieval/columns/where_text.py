"""Conditions as text, `price<=20 and brand in (a, b)`, parsed to the mapping that `where` takes.

A condition joins parts by "and" and "or", of which "and" binds more tightly; "not" and brackets come before a part. A
part is `column operator value`, `column in (value, ..)`, `column not in (..)`, `column is missing` or `column is not
missing`.
"""

from __future__ import annotations

import re
from typing import Any

from beamwood.arguments import naming_arguments
from beamwood.errors import InputError
from beamwood.retrieval.columns.item_columns import ItemColumns
from beamwood.retrieval.columns.number_column import NumberColumn

__all__ = ["parse_where"]

_OPERATORS = {"<=": "lte", ">=": "gte", "<": "lt", ">": "gt", "!=": "ne", "==": "eq", "=": "eq"}
_TOKEN = re.compile(r"""\s*(?:("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(<=|>=|!=|==|[<>=(),])|([^\s<>=!(),'"]+))""")
_DEEPEST = 50


@naming_arguments
def parse_where(text: str, columns: ItemColumns) -> dict[str, Any]:
    """The mapping of a condition. A bare word, or text in quotes, is a value of its column's type.

    Errors: a syntax error, naming the place; a column that was not kept, with the nearest.
    """
    reading = _Reading(text, columns)
    found = reading.any_of(0)
    if reading.place < len(reading.tokens):
        raise reading.wrong("'and', 'or' or the end")
    return found


class _Reading:
    """A parser over the tokens of a text."""

    def __init__(self, text: str, columns: ItemColumns) -> None:
        self.text, self.columns, self.place = text, columns, 0
        self.tokens: list[tuple[str, str]] = []
        at, stop = 0, len(text.rstrip())
        while at < stop:
            match = _TOKEN.match(text, at)
            if match is None:
                raise InputError(f"--where {text!r}: {text[at:].strip()[:20]!r} is not understood; {_LIKE}")
            quoted, sign, word = match.groups()
            kind = "text" if quoted else "sign" if sign else "word"
            self.tokens.append((kind, re.sub(r"\\(.)", r"\1", quoted[1:-1]) if quoted else sign or word))
            at = match.end()

    def any_of(self, depth: int) -> dict[str, Any]:
        """Conditions joined by "or"."""
        parts = [self._all_of(depth)]
        while self._word("or"):
            parts.append(self._all_of(depth))
        return parts[0] if len(parts) == 1 else {"any": parts}

    def _all_of(self, depth: int) -> dict[str, Any]:
        parts = [self._part(depth)]
        while self._word("and"):
            parts.append(self._part(depth))
        return parts[0] if len(parts) == 1 else {"all": parts}

    def _part(self, depth: int) -> dict[str, Any]:
        if depth > _DEEPEST:
            raise InputError(f"--where is nested more than {_DEEPEST} deep; write it flatter")
        if self._word("not"):
            return {"not": self._part(depth + 1)}
        if self._sign("("):
            inner = self.any_of(depth + 1)
            self._need(")")
            return inner
        name = self._name()
        column = self.columns[name]
        if self._word("is"):
            missing = not self._word("not")
            if not self._word("missing"):
                raise self.wrong("'missing'")
            return {name: {"missing": missing}}
        negative = self._word("not")
        if self._word("in"):
            self._need("(")
            values = [self._value(column)]
            while self._sign(","):
                values.append(self._value(column))
            self._need(")")
            return {name: {"not_in" if negative else "in": values}}
        kind, sign = self._here()
        if negative or kind != "sign" or sign not in _OPERATORS:
            raise self.wrong("one of <= >= < > = != in, is missing")
        self.place += 1
        return {name: {_OPERATORS[sign]: self._value(column)}}

    def _name(self) -> str:
        """A column. Errors: a column with blanks, without quotes."""
        name = joined = self._next("a column")
        for kind, text in self.tokens[self.place :] if name not in self.columns else ():
            joined = f"{joined} {text}"
            if kind == "word" and joined in self.columns:
                raise InputError(f"--where {self.text!r}: the column '{joined}' has blanks; put its name in quotes")
        return name

    def _value(self, column: Any) -> Any:
        text = self._next("a value")
        if not isinstance(column, NumberColumn) or column.kind == "time":
            return text
        if column.kind == "truth" and text.lower() in ("true", "false"):
            return text.lower() == "true"
        if "_" in text:
            # Only Python takes this for a number.
            return text
        try:
            return int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text)
        except ValueError:
            return text

    def _here(self) -> tuple[str, str]:
        return self.tokens[self.place] if self.place < len(self.tokens) else ("end", "")

    def _word(self, word: str) -> bool:
        kind, text = self._here()
        found = kind == "word" and text.lower() == word
        self.place += found
        return found

    def _sign(self, sign: str) -> bool:
        found = self._here() == ("sign", sign)
        self.place += found
        return found

    def _need(self, sign: str) -> None:
        if not self._sign(sign):
            raise self.wrong(f"'{sign}'")

    def _next(self, what: str) -> str:
        kind, text = self._here()
        if kind not in ("word", "text"):
            raise self.wrong(what)
        self.place += 1
        return text

    def wrong(self, wanted: str) -> InputError:
        """The error about an unexpected token."""
        kind, text = self._here()
        there = "it ends" if kind == "end" else f"{text!r} stands"
        two_words = kind == "word" and self.place > 0 and self.tokens[self.place - 1][0] == "word"
        quotes = ", and what has blanks in quotes" if two_words else ""
        return InputError(f"--where {self.text!r}: {there} where {wanted} should; {_LIKE}{quotes}")


_LIKE = "write it as 'price<=20 and brand in (a, b)'"
