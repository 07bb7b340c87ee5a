"""Learn a search tree together with the neural model that searches it.

`load(path)` opens a saved retriever, `fit(split, method=...)` trains one, `evaluate(retriever, split)` judges it. None
imports torch before it is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from beamwood.evaluation.protocol import PerQuery
    from beamwood.retrieval.retriever import Retriever

__version__ = "0.1.0"

__all__ = ["__version__", "evaluate", "fit", "load"]


def load(path: Any, method: Any = None) -> Retriever:
    """The retriever saved at `path`; needs no training data and no torch. Errors: `ArtefactError` naming the file.

    `method`: the `Method`, or its .py file, of a folder whose searcher only that file defines; no file is run unasked.
    A file other than the one of the fit is an `InputError`.
    """
    retriever: type[Retriever] = import_module("beamwood.retrieval.retriever").Retriever
    if method is None:
        return retriever.load(path)
    searchers = import_module("beamwood.methods.reload").searchers_of(method, path)
    return retriever.load(path, searchers=searchers)


def fit(split: Any, method: Any = "dtr", config: Any = None, **options: Any) -> Retriever:
    """Train a method on a split; `options` are `beamwood.methods.TrainOptions`.

    `method`: a name of `beamwood.methods.METHODS`, a `Method`, or a .py file that defines one. `config` is the method's
    own `Config` or a mapping of its settings, as {"loop.max_steps": 3000}. In "dtr+cooccurrence" config and options are
    the first's, and the second, which counts, goes behind it with weights that validation users choose. Errors:
    `InputError` on what is no split, on a method, a setting or an option that does not exist, and on values outside
    their bounds.
    """
    sums = import_module("beamwood.methods.sums")
    first, *others = sums.parts(method)
    sums.check_counting(first, others)
    fitted: Retriever = first.fitted(split, config, **options)
    both: Retriever = sums.with_counting(fitted, others, split, seed=options.get("seed", 0))
    return both


def evaluate(retriever: Retriever, split: Any, *, ks: Sequence[int] = (20,)) -> dict[str, PerQuery]:
    """Rank the whole catalogue for every test query of the split that the retriever was fitted on.

    {"all": what a user has had left in, "new": taken out}, each with metrics by query and, with `means()`, their means
    by name, as "f@20". Errors: `InputError` on another split or other data than those of the fit, and on cuts that are
    no whole numbers in 1..N.
    """
    import_module("beamwood.methods").check_fitted(retriever, split)
    views: dict[str, PerQuery] = import_module("beamwood.evaluation.protocol").evaluate_split(
        retriever.searcher, split, ks=ks
    )
    return views
