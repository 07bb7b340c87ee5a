"""Calls every function of the native core with each kind of wrong argument, one at a time.

Other arguments are zeros; the tree search gets those of a real tree. As a program it prints each call before it is
made, so that a call that crashes the process is the last line.
"""

import inspect
import re
import sys

import numpy as np

native = __import__("beamwood._native", fromlist=["_native"])

WRONG = (None, "x", b"x", 1.5, -1, 2**70, [], (), {}, object(), np.zeros(3), np.array(["a"]), [None])
WRONG += tuple((None,) * length for length in range(1, 9))


def split(text):
    """The parts of a list of types, split at commas outside brackets."""
    parts, depth, start = [], 0, 0
    for place, character in enumerate(text):
        depth += (character in "[(") - (character in "])")
        if character == "," and depth == 0:
            parts.append(text[start:place].strip())
            start = place + 1
    return [part for part in [*parts, text[start:].strip()] if part]


def value_of(kind):
    """A value of a type in nanobind's notation: zeros of length 1; for a container type, a list of such values."""
    kind = kind.removesuffix(" | None").strip()
    array = re.match(r"(?:numpy\.)?ndarray\[dtype=(\w+), shape=\(([^)]*)\)", kind)
    if array:
        return np.zeros((1,) * len(split(array[2])), array[1])
    inside = kind[kind.index("[") + 1 : kind.rindex("]")] if "[" in kind else ""
    if kind.startswith("tuple["):
        return tuple(value_of(part) for part in split(inside))
    if "Sequence[" in kind or kind.startswith("list["):
        return [value_of(inside)]
    if "Mapping[" in kind or kind.startswith("dict["):
        key, part = split(inside)
        return {value_of(key): value_of(part)}
    return {"int": 1, "float": 0.5, "bool": True, "str": ""}.get(kind)


def damaged(value):
    """The value with each part replaced by each wrong value."""
    yield from WRONG
    if isinstance(value, tuple | list):
        kind = type(value)
        for place, part in enumerate(value):
            for wrong in damaged(part):
                yield kind([*value[:place], wrong, *value[place + 1 :]])
        yield kind(value[:-1])
        yield kind([*value, None])
    if isinstance(value, np.ndarray):
        yield value.astype(np.complex64)
        yield value[..., None]
        yield np.empty((0,) * value.ndim, value.dtype)


def calls():
    """Triples of a name, a callable and its arguments: every function with zeros, and the search as a tree calls it."""
    for name, found in sorted(vars(native).items()):
        if not name.startswith("__") and not inspect.isclass(found) and callable(found):
            yield name, found, [value_of(kind) for kind in types_of(found.__doc__)]
    yield from searches()


def searches():
    """The constructor and the methods of a search, with arguments recorded from a small tree."""
    import damaged_folders
    from beamwood.types import ItemLists, Query

    seen, made = [], native.Searcher

    class Recorded:
        def __init__(self, *arguments):
            self.real = made(*arguments)
            seen.append(("Searcher", made, list(arguments)))

        def __getattr__(self, name):
            method = getattr(self.real, name)

            def call(*arguments):
                seen.append((f"Searcher.{name}", method, list(arguments)))
                return method(*arguments)

            return call

    native.Searcher = Recorded
    try:
        tree = damaged_folders.KINDS["tree"]()
        histories = ItemLists.from_lists([[1, 2, 3], [4]])
        query = Query(np.zeros(2, np.int64), histories)
        tree.search(query, 3)
        tree.exact(query, 3)
        tree.score(query, np.arange(4).reshape(2, 2))
    finally:
        native.Searcher = made
    yield from seen


def types_of(words):
    """The types in a nanobind signature, None for an argument without a type."""
    inside = words[words.index("(") + 1 : words.index(" -> ") - 1]
    return [part.partition(": ")[2].partition(" = ")[0] or None for part in split(inside)]


def main():
    made = refused = 0
    for name, called, values in calls():
        for place, value in enumerate(values):
            for wrong in damaged(value):
                given = [*values[:place], wrong, *values[place + 1 :]]
                print(f"{name} argument {place}: {type(wrong).__name__} {str(wrong)[:60]!r}", flush=True)
                made += 1
                try:
                    called(*given)
                except (TypeError, ValueError, RuntimeError, OverflowError, MemoryError, IndexError):
                    refused += 1
    print(f"{made} calls, {refused} refused")


if __name__ == "__main__":
    sys.exit(main())
