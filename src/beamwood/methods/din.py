"""DIN by brute force: every item is scored for every query, which a tree with the same scorer approximates.

Source: DTR, section 6.2. The rival "DIN" has two outputs there, for the probability that a user likes an item; here it
has one output and a sampled softmax over items, like the trees that it is compared with.
"""

from __future__ import annotations

from typing import ClassVar, Self, Unpack

from pydantic import model_validator

from beamwood.data.split import Split
from beamwood.fitting.tree.config import TreeConfig
from beamwood.fitting.tree.options import TreeOptions
from beamwood.fitting.tree.papers import DTR_STUDY
from beamwood.fitting.tree.settings import DrawnLossSettings, TreeSettings
from beamwood.methods.method import Method, Needs
from beamwood.retrieval.retriever import Retriever

__all__ = ["METHOD", "Config"]


class Config(TreeConfig):
    """DIN over all items, with as many negatives as a tree draws on all its levels.

    See `TreeConfig`; its tree settings do not apply.
    """

    fixed: ClassVar[frozenset[str]] = frozenset({"tree.start", "tree.updates", "tree.spare"})

    tree: TreeSettings = TreeSettings(start="flat")
    loss: DrawnLossSettings = DrawnLossSettings(num_negatives=280)

    @model_validator(mode="after")
    def _no_tree(self) -> Self:
        if self.tree.start != "flat" or self.tree.updates:
            raise ValueError(
                f"tree.start={self.tree.start} and tree.updates={self.tree.updates}: din has no tree; leave them out"
            )
        return self


def fit(split: Split, config: Config, **options: Unpack[TreeOptions]) -> Retriever:
    """See `fit_tree`."""
    from beamwood.fitting.tree.fit import fit_tree
    from beamwood.fitting.tree.objective import TreeObjective
    from beamwood.sampling.levels import UniformByLevel

    return fit_tree(
        split, config, lambda _: TreeObjective(UniformByLevel([config.loss.num_negatives])), method="din", **options
    )


# DTR's section 6, with one output instead of two.
PAPER = {**DTR_STUDY, "model.mlp": (128, 64), "tree.start": "flat", "loss.num_negatives": 70}

METHOD = Method(
    name="din",
    summary="the scorer of `dtr` over all items, without a tree: what a tree approximates",
    Config=Config,
    fit=fit,
    needs=Needs(steps=True),
    presets={"paper": PAPER},
)
