"""PLT: the probability of an item is the product of the conditional probabilities along its path.

Source: Jasinska et al., "Extreme F-measure maximization using sparse probability estimates" (PLT), section 4; in the
form that DTR compares against: a DIN scorer, with the siblings of the path as negatives.
"""

from __future__ import annotations

from typing import ClassVar, Self, Unpack

from pydantic import model_validator

from beamwood.data.split import Split
from beamwood.fitting.tree.config import TreeConfig
from beamwood.fitting.tree.options import TreeOptions
from beamwood.fitting.tree.papers import DTR_STUDY
from beamwood.fitting.tree.settings import TreeModelSettings
from beamwood.methods.method import Method, Needs
from beamwood.retrieval.retriever import Retriever

__all__ = ["METHOD", "Config"]


class Config(TreeConfig):
    """See `TreeConfig`; no light head can steer a search whose scores are of paths."""

    fixed: ClassVar[frozenset[str]] = frozenset({"model.light_width"})

    model: TreeModelSettings = TreeModelSettings(light_width=0)

    @model_validator(mode="after")
    def _no_light_head(self) -> Self:
        if self.model.light_width:
            raise ValueError(
                f"model.light_width={self.model.light_width}: plt scores paths, of which every level is judged, so it "
                "has no light head; leave it out"
            )
        return self


def fit(split: Split, config: Config, **options: Unpack[TreeOptions]) -> Retriever:
    """See `fit_tree`."""
    from beamwood.fitting.tree.fit import fit_tree
    from beamwood.fitting.tree.objective import TreeObjective
    from beamwood.losses.levels import LEVEL_LOSSES
    from beamwood.sampling.levels import Siblings

    return fit_tree(
        split, config, lambda _: TreeObjective(Siblings(), loss=LEVEL_LOSSES["path"]), method="plt", **options
    )


# DTR's section 6.
PAPER = dict(DTR_STUDY)

METHOD = Method(
    name="plt",
    summary="the product of the conditional probabilities along the path to an item",
    Config=Config,
    fit=fit,
    needs=Needs(steps=True),
    presets={"paper": PAPER},
)
