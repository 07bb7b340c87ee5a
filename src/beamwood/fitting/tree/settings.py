"""The settings that all tree retrievers share; each method states its own defaults."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field, field_validator, model_validator

from beamwood.data.examples import WindowsOfUsers
from beamwood.fitting.effect import Not, Only
from beamwood.fitting.method_config import SettingsGroup
from beamwood.fitting.neighbour_kinds import NeighbourKind
from beamwood.fitting.plan import Start
from beamwood.fitting.settings import (
    AttentionStartSettings,
    Dropout,
    HistoryLength,
    Horizon,
    Mlp,
    NumNegatives,
    NumTargets,
    TableOptimiserSettings,
    Width,
)
from beamwood.models.parameters import LayerWidth
from beamwood.retrieval.stored import MOST
from beamwood.tree import Shape, ShapeName, choose_shape

__all__ = [
    "ORDERS",
    "BeamLossSettings",
    "DrawnLossSettings",
    "TreeExampleSettings",
    "TreeLossSettings",
    "TreeModelSettings",
    "TreeOptimiserSettings",
    "TreeSettings",
    "TreeStartSettings",
]


_UPDATED, _HAS_LEVELS = Not("tree.updates", (0,)), Not("tree.start", ("flat",))
# Starts that order the items; the order is then placed on the leaves of a tree of the chosen shape.
ORDERS = ("transitions", "pifa", "category", "random", "kmeans")
_IS_BUILT = Only("tree.start", ("auto", "papers", *ORDERS))


class TreeModelSettings(SettingsGroup):
    """The scorer of nodes."""

    width: Width = 48
    attention_hidden: LayerWidth = Field(36, description="width of the attention's hidden layer")
    windows: tuple[HistoryLength, ...] = Field(
        (20, 20, 10, 10, 2, 2, 2, 1, 1, 1),
        min_length=1,
        max_length=2**14 - 1,
        description="lengths of the history windows, oldest first; each window is summed separately",
    )
    mlp: Mlp = (128, 64, 24)
    norm: Literal["none", "batch"] = Field("none", description="normalisation before the activations")
    activation: Literal["prelu", "relu"] = Field(
        "relu", description="activation of the layers; prelu: the authors' code"
    )
    unit_coordinate: bool = Field(True, description="keep the first coordinate of every vector at 1; not in the paper")
    dropout: Dropout = 0.0
    recompute: bool = Field(False, description="recompute activations: a third of the training memory, but slower")
    similarity_width: int | None = Field(
        None,
        ge=0,
        lt=2**14,
        description="columns of the fixed similarity added to scores; 0: none (the papers); null: at most 256",
    )
    num_neighbours: int | None = Field(
        None,
        ge=0,
        le=4096,
        description="neighbours per item whose counts are added; 0: none (the papers); null: 128 for sessions, "
        "large catalogues, ordered logs",
    )
    # Chosen on data, not from facts, and so omitted in a plan without a choice. Own terms may always read it.
    neighbours: NeighbourKind | None = Field(
        None,
        exclude_if=lambda kind: kind is None,
        description="neighbours: around (ten steps both ways), after (ten later), next (later, weighted by proximity); "
        "null: by validation",
    )
    light_width: Annotated[int, _HAS_LEVELS] = Field(
        64,
        ge=0,
        lt=2**14,
        description="columns of the light head that steers searches, distilled from the scorer; 0: none (the papers)",
    )


class TreeSettings(SettingsGroup):
    """The tree: its start, its search, and its updates."""

    start: str = Field(
        "auto",
        description="transitions, pifa, category, random, papers (category, else random), kmeans, codes:COLUMN (item "
        "table), or a fitted tree's folder",
    )
    shape: Annotated[ShapeName | tuple[int, int], _HAS_LEVELS, _IS_BUILT] = Field(
        "compact",
        description="compact: few empty leaves; complete: every node has all children (the papers); or [root "
        "fan-out, depth]",
    )
    # Omitted in a plan, whose shape contains it.
    spare: float | None = Field(
        None,
        gt=0,
        le=10,
        exclude_if=lambda spare: spare is None,
        description="minimum empty leaves per item, as room for new items; null: as the shape leaves",
    )
    vectors: Annotated[str | None, Only("tree.start", ("kmeans",))] = Field(
        None, description="for start=kmeans: folder of a fitted method with the item vectors"
    )
    branching: Annotated[int, _HAS_LEVELS] = Field(16, ge=2, le=256, description="children per node")
    beam_width: Annotated[int, _HAS_LEVELS] = Field(150, ge=1, le=MOST, description="nodes kept per level in a search")
    updates: int = Field(0, ge=0, description="number of tree updates, evenly spaced over the run")
    learner: Annotated[Literal["softmax", "binary", "kmeans"], _UPDATED] = Field(
        "softmax", description="tree update by softmax over candidates (DTR), binary likelihood (JTM) or k-means (TDM)"
    )
    stride: Annotated[int | None, _UPDATED, Only("tree.learner", ("softmax", "binary"))] = Field(
        None, ge=1, description="levels an item descends at once; null: at most 128 candidates, or one level"
    )
    max_instances: Annotated[int, _UPDATED, Only("tree.learner", ("softmax", "binary"))] = Field(
        30, ge=1, description="maximum training examples per item in a tree update"
    )
    embeddings: Annotated[Literal["node", "item"], _UPDATED] = Field(
        "item", description="after a tree update, leaf embeddings follow the item or stay with the node (authors' code)"
    )
    after_update: Annotated[Literal["keep", "restart"], _UPDATED] = Field(
        "restart", description="optimiser state and warm-up after a tree update; restart: the authors' code"
    )
    rollback: Annotated[bool, _UPDATED] = Field(
        False, description="revert a tree update that lowers the monitored metric"
    )

    @field_validator("shape", mode="before")
    @classmethod
    def _a_word_or_two_numbers(cls, shape: Any) -> Any:
        numbers = isinstance(shape, list | tuple) and len(shape) == 2 and all(type(each) is int for each in shape)
        if not numbers and shape not in get_args(ShapeName):
            raise ValueError("give compact, complete, or two whole numbers: the root's children and the depth")
        return shape

    @model_validator(mode="after")
    def _spare_is_of_a_shape_that_is_chosen(self) -> Self:
        if self.spare is not None and not isinstance(self.shape, str):
            raise ValueError("spare is for a shape that is chosen; set tree.shape to compact or complete")
        return self

    def shape_of(self, num_items: int) -> Shape:
        """The shape of a tree built from an order of `num_items` items. Errors: as `Shape`."""
        if isinstance(self.shape, str):
            room = num_items if self.spare is None else math.ceil(num_items * (1 + self.spare))
            return choose_shape(room, self.branching, self.shape)
        root_fanout, depth = self.shape
        return Shape(root_fanout, self.branching, depth)


class TreeStartSettings(AttentionStartSettings):
    """The initial scores."""

    scores: Start = Field(
        "auto",
        description="transitions: similarity of history and node; random: the papers; auto: transitions up to "
        "2,000,000 items",
    )
    seen: float | None = Field(
        None,
        ge=-MOST,
        le=MOST,
        description="initial score of a seen item per occurrence; null: 0, or chosen on validation users",
    )


class TreeExampleSettings(SettingsGroup):
    """What a training example is."""

    num_targets: NumTargets = 8
    # After the last window a user has a single item.
    horizon: Annotated[Horizon, Not("examples.window", ("last",))] = 10
    of: Literal["users", "positions"] = Field(
        "users", description="an epoch covers users, with one position each, or all positions (the papers)"
    )
    window: WindowsOfUsers = Field(
        "all", description="training windows of a user: all (DTR's code), or the last (DTR's paper)"
    )
    min_history: int = Field(1, ge=1, description="minimum length of training histories; DTR: 15")


class TreeLossSettings(SettingsGroup):
    """The reduction of the losses of levels."""

    level_reduction: Annotated[Literal["mean", "sum"], _HAS_LEVELS] = Field(
        "mean", description="reduction of the loss over levels"
    )


class DrawnLossSettings(TreeLossSettings):
    """The loss over nodes that are drawn on each level."""

    num_negatives: NumNegatives = 48


class BeamLossSettings(TreeLossSettings):
    """The loss over the candidates of a beam."""

    num_candidates: int = Field(
        300, ge=2, description="nodes compared per level: the children of a beam of num_candidates / branching nodes"
    )


class DtrLossSettings(TreeLossSettings):
    """The softmax of each level, its negatives and its labels."""

    negatives: Literal["uniform", "tree"] = Field("uniform", description="sampler of the softmax on a level")
    num_negatives: NumNegatives | None = Field(
        None, description="samples per level; null: 70, or 20 for walks of the tree"
    )
    depth_alpha: Annotated[float, Only("loss.negatives", ("uniform",))] = Field(
        0.0, ge=0, description="adaptive sampling (appendix I); 0: the same number on every level"
    )
    labels: Literal["summed", "rectified", "one-step"] = Field(
        "summed", description="rectified: equation 14 of the paper; one-step: the authors' code"
    )
    normalised: Annotated[bool, Only("loss.labels", ("rectified",))] = Field(
        False, description="divide rectified labels by the mass of their level (definition 3)"
    )
    estimator: Annotated[str | None, Only("loss.labels", ("rectified", "one-step"))] = Field(
        None, description="estimator of rectified labels: a method to fit first (null: sasrec), or a folder (./sasrec)"
    )


class TreeOptimiserSettings(TableOptimiserSettings):
    """The optimiser of trees: the embeddings of nodes have no decay."""

    decay: Annotated[Literal["decoupled", "coupled"], Not("optimiser.weight_decay", (0.0,))] = Field(
        "decoupled", description="type of weight_decay; coupled: L2, also on embeddings (the authors' code)"
    )
    amsgrad: bool = Field(
        False, description="AMSGrad: Adam divides by the largest second moment so far (the authors' code)"
    )
    bf16: bool | None = Field(
        None, description="matrix products in bfloat16 during training; null: if the processor supports it"
    )
