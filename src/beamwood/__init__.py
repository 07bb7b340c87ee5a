"""Learn a search tree together with the neural model that searches it.

From a log to recommendations; nothing imports torch before it trains:

    >>> import beamwood
    >>> rows = [(user, item, time) for user in range(40) for time, item in enumerate([user % 5, 5, 6, 7, user % 3 + 8])]
    >>> import polars
    >>> frame = polars.DataFrame(rows, schema=["user_id", "item_id", "timestamp"], orient="row")
    >>> dataset = beamwood.Dataset.from_log(beamwood.read_log(frame))
    >>> split = beamwood.splits.leave_one_out(dataset)
    >>> retriever = beamwood.fit(split, "cooccurrence")
    >>> retriever.recommend([[5]], k=1).item_ids
    [[6]]
    >>> views = beamwood.evaluate(retriever, split, ks=(3,))
    >>> sorted(views)
    ['kept', 'removed']
    >>> beamwood.compare(split, ["popularity", "cooccurrence"], ks=(3,)).metric
    'f@3'
    >>> beamwood.settings("dtr")["loop.max_steps"]["default"]
    16000
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from beamwood.arguments import naming_arguments

if TYPE_CHECKING:
    from os import PathLike

    from beamwood.data import Dataset, read_log
    from beamwood.data import split as splits
    from beamwood.data.split import Split
    from beamwood.evaluation.results import PerQuery
    from beamwood.methods import Method
    from beamwood.recipes.compare import compare
    from beamwood.recipes.refit import refit
    from beamwood.retrieval.retriever import Retriever
    from beamwood.training.budget import Budget

# Read once when torch loads: threads that spin at barriers cost many times the work on a busy machine.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

__version__ = "0.1.0"

__all__ = ["Dataset", "__version__", "compare", "evaluate", "fit", "load", "read_log", "refit", "settings", "splits"]

# Lazy imports: the module, and the name in it (None: the module itself).
_LATER = {
    "Dataset": ("beamwood.data", "Dataset"),
    "compare": ("beamwood.recipes.compare", "compare"),
    "read_log": ("beamwood.data", "read_log"),
    "refit": ("beamwood.recipes.refit", "refit"),
    "splits": ("beamwood.data.splits", None),
}


def __getattr__(name: str) -> Any:
    """What is imported when it is first asked for; `splits` is the module of the splits."""
    if name not in _LATER:
        raise AttributeError(f"module 'beamwood' has no attribute {name!r}; it has: {', '.join(__all__)}")
    module, own = _LATER[name]
    found = import_module(module)
    return found if own is None else vars(found)[own]


def __dir__() -> list[str]:
    """What is offered, for completion and `help`."""
    return list(__all__)


@naming_arguments
def load(
    path: str | PathLike[str],
    method: str | PathLike[str] | Method | None = None,
    *,
    threads: int = 1,
    verify: bool = False,
) -> Retriever:
    """Load the retriever saved at `path`, without training data or torch. Errors: `ArtefactError` naming the file.

    `method`: the `Method`, or its .py file, where only that file defines the searcher; a file is run only if given
    here. A file that differs from the one of the fit is an `InputError`. Weights are memory-mapped, so that processes
    share them; `verify` reads and checks all of them. `threads`: rows searched at once, over all callers together.
    """
    retriever: type[Retriever] = import_module("beamwood.retrieval.retriever").Retriever
    if method is None:
        return retriever.load(path, threads=threads, verify=verify)
    searchers = import_module("beamwood.methods.reload").searchers_of(method, path)
    return retriever.load(path, searchers=searchers, threads=threads, verify=verify)


@naming_arguments
def fit(
    split: Split,
    method: str | PathLike[str] | Method | None = None,
    config: Any = None,
    *,
    preset: str | None = None,
    seed: int = 0,
    time_limit: float | Budget | None = None,
    **options: Any,
) -> Retriever:
    """Find the best method for a split within a time limit, or train the named method.

    `seed`, 0 or more, starts all that is drawn; `time_limit` in seconds covers all of it. Without a method other
    `options` are those of `beamwood.recipes.portfolio.find.find`, as `budget_ms=5`; the table of what was measured is
    in `metadata["portfolio"]`. With one they are `beamwood.methods.TrainOptions`, as `progress=False`. `method`: a name
    of `beamwood.methods.METHODS`, a `Method`, or a .py file that defines one. `config` is the method's own `Config` or
    a mapping of its settings, as {"loop.max_steps": 3000}, which win over those of its `preset`, such as "paper". In
    "dtr+cooccurrence" config, preset and options are the first's, and the second, which counts, goes behind it with
    weights that validation users choose. Errors: `InputError` on what is no split; on a method, a setting, a preset or
    an option that does not exist; on values outside their bounds.
    """
    options = {"seed": seed, "time_limit": time_limit, **options}
    if method is None:
        return _best(split, config, preset, options)
    sums = import_module("beamwood.methods.sums")
    first, *others = sums.parts(method)
    sums.check_counting(first, others)
    both: Retriever = sums.fit_sum(first, others, split, config, preset=preset, **options)
    return both


def _best(split: Split, config: Any, preset: str | None, options: dict[str, Any]) -> Retriever:
    errors = import_module("beamwood.errors")
    if config is not None or preset is not None:
        raise errors.InputError("config and preset belong to a method; name it, as beamwood.fit(split, 'dtr', config)")
    find = import_module("beamwood.recipes.portfolio.find").find
    known = [name for name in inspect.signature(find).parameters if name != "split"]
    for name in options:
        if name not in known:
            raise errors.InputError(f"option '{name}' is unknown{errors.nearest(name, known)}")
    found: Retriever = find(split, **options).retriever
    return found


@naming_arguments
def evaluate(retriever: Retriever, split: Split, *, ks: Sequence[int] = (20,)) -> dict[str, PerQuery]:
    """Rank the whole catalogue for every test query of the split that the retriever was fitted on.

    Two views, {"kept": seen items kept, "removed": seen items removed}; each has metrics by query, and `means()` gives
    their means by name, as "f@20". Errors: `InputError` on a split or data other than those of the fit, and on `ks`
    that are not whole numbers in 1..N.
    """
    import_module("beamwood.methods").check_fitted(retriever, split)
    views: dict[str, PerQuery] = import_module("beamwood.evaluation.protocol").evaluate_split(
        retriever.searcher, split, ks=ks
    )
    return views


@naming_arguments
def settings(method: str | PathLike[str] | Method) -> dict[str, dict[str, Any]]:
    """A method's settings by dotted name: default, allowed words, description, and value by preset."""
    found: Method = import_module("beamwood.methods").load_method(method)
    return found.described()
