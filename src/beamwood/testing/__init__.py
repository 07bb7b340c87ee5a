"""Contract tests for authors of parts: inherit a class, name the part, and pytest collects the contract's tests.

All need the extra `testing`. That of stores needs `serve` too; those of encoders, losses, samplers, scores and terms
need `train`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from beamwood.extras import asking_for

if TYPE_CHECKING:
    from beamwood.testing.encoders import EncoderContract
    from beamwood.testing.in_batch import InBatchSamplerContract
    from beamwood.testing.indexes import IndexContract
    from beamwood.testing.losses import LevelLossContract
    from beamwood.testing.methods import MethodContract
    from beamwood.testing.samplers import LevelSamplerContract
    from beamwood.testing.scores import PairScoreContract
    from beamwood.testing.stores import HistoryStoreContract
    from beamwood.testing.terms import TermContract

__all__ = [
    "EncoderContract",
    "HistoryStoreContract",
    "InBatchSamplerContract",
    "IndexContract",
    "LevelLossContract",
    "LevelSamplerContract",
    "MethodContract",
    "PairScoreContract",
    "TermContract",
]

# Imported on first use: a counting method is tested without torch.
_LATER = {
    "EncoderContract": "beamwood.testing.encoders",
    "HistoryStoreContract": "beamwood.testing.stores",
    "InBatchSamplerContract": "beamwood.testing.in_batch",
    "IndexContract": "beamwood.testing.indexes",
    "LevelLossContract": "beamwood.testing.losses",
    "LevelSamplerContract": "beamwood.testing.samplers",
    "MethodContract": "beamwood.testing.methods",
    "PairScoreContract": "beamwood.testing.scores",
    "TermContract": "beamwood.testing.terms",
}


def __getattr__(name: str) -> Any:
    """The contracts. Raises `NotInstalledError` where an extra that one needs is missing."""
    if name not in _LATER:
        raise AttributeError(f"module 'beamwood.testing' has no attribute {name!r}; it has: {', '.join(__all__)}")
    with asking_for(f"beamwood.testing.{name}"):
        return vars(import_module(_LATER[name]))[name]


def __dir__() -> list[str]:
    """What is offered, for completion and `help`."""
    return list(__all__)
