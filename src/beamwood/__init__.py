"""Learn a search tree together with the neural model that searches it.

`load(path)` opens a saved retriever; `fit(split, method=...)` trains one. Neither imports torch before it is needed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from beamwood.retrieval.retriever import Retriever

__version__ = "0.1.0"

__all__ = ["__version__", "fit", "load"]


def load(path: Any) -> Retriever:
    """The retriever saved at `path`; needs no training data and no torch. Errors: `ArtefactError` naming the file."""
    retriever: type[Retriever] = import_module("beamwood.retrieval.retriever").Retriever
    return retriever.load(path)


def fit(split: Any, method: str = "dtr", config: Any = None, **options: Any) -> Retriever:
    """Train a method (see `beamwood.methods.METHODS`) on a split; `options` are `beamwood.methods.TrainOptions`.

    `config` is the method's own `Config` or a mapping of its settings. Errors: `InputError` on what is no split, on a
    method, a setting or an option that does not exist, and on values outside their bounds.
    """
    methods = import_module("beamwood.methods")
    module = methods.load_method(method)
    methods.check_split(split)
    options = methods.checked_options(module.fit, options)
    fitted: Retriever = module.fit(split, methods.configured(module, config), **options)
    return fitted
