"""What all tree retrievers share in configuration; each method narrows it and sets its own defaults."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from beamwood.errors import InputError
from beamwood.fitting.settings import HistoryLength, LayerWidth, MethodConfig
from beamwood.fitting.vectors.item_start import Start, starts_from_transitions
from beamwood.kernels.din import MAX_HISTORY
from beamwood.models.din import WINDOWS
from beamwood.retrieval.stored import MOST
from beamwood.training.lazy_adam import EmbeddingOptimizer

__all__ = ["NodeStart", "TreeConfig"]

# Of all items together: 128 MiB, and while they are trained five times that.
_MOST_NEIGHBOURS = 2**24

NodeStart = Annotated[
    Start,
    Field(description="transitions: scores start as the similarity of history and node; auto: up to 2,000,000 items"),
]


class TreeConfig(MethodConfig):
    """How a tree retriever is built and trained; the defaults were chosen on validation data of `ml1m` and others.

    The papers' own values where ours differ: branching 2, width 24, targets 1, horizon 1, batch_size 100, learning_rate
    1e-3 with schedule "exponential", warmup_steps 5000, decay_steps 15000 and floor 1e-6, unit_coordinate False,
    attention_start None, node_start "random", norm "batch", bf16 False, examples "positions", min_history 15 (DTR), and
    tree "category" where the items have categories.
    """

    tree: str = Field(
        "auto", description="transitions, pifa, category, random, kmeans, or a folder with a tree to start from"
    )
    node_start: NodeStart = "auto"
    vectors: str | None = Field(None, description="tree=kmeans: folder of a fitted method whose item vectors to use")
    branching: int = Field(16, ge=2, le=256)
    width: LayerWidth = 48
    attention_hidden: LayerWidth = 36
    windows: tuple[HistoryLength, ...] = Field(WINDOWS, min_length=1, max_length=2**14 - 1)
    mlp: tuple[LayerWidth, ...] = Field((128, 64, 24), min_length=1)
    norm: Literal["none", "batch"] = "none"
    activation: Literal["prelu", "relu"] = "relu"
    unit_coordinate: bool = Field(True, description="see DinScorer; the paper has none")
    attention_start: float | None = Field(0.3, description="attention's output at first; null: as drawn (the papers)")
    dropout: float = Field(0.0, ge=0, lt=1)
    recompute: bool = Field(False, description="a third of the training memory, for more time")
    similarity_width: int | None = Field(
        None,
        ge=0,
        lt=2**14,
        description="columns of the fixed similarity of history and node that is added to the score; 0: none (the "
        "papers); null: where scores start from transitions 256 up to 50,000 items, 128 up to 200,000, else 64",
    )
    repeat_start: float | None = Field(
        None,
        ge=-MOST,
        le=MOST,
        description="what the weights of repeats start from: the score that an item gets for each place of "
        "the history that holds it; null: 0, or more where 500 validation users like it",
    )
    repeat_weight: float | None = Field(
        None,
        ge=-MOST,
        le=MOST,
        description="added to the weights of repeats after training, which answers without consumed items do not see; "
        "null: chosen on validation users, of PLT 0",
    )
    num_neighbours: int | None = Field(
        None,
        ge=0,
        le=4096,
        description="neighbours of each node, by what surrounded what, whose lifts are added to the score; 0: none "
        "(the papers); null: where scores start from transitions and users have 8 interactions at most in the mean "
        "or items are more than 200,000, 128, or as many as make 2^24 for all items together",
    )
    beam_width: int = Field(150, ge=1, le=MOST)
    targets: int = Field(8, ge=1, description="items of the user's future that one history is trained on")
    horizon: int = Field(10, ge=0, description="how far ahead targets are drawn; 1: the next item only, 0: no bound")
    level_reduction: Literal["mean", "sum"] = "mean"
    examples: Literal["users", "positions"] = Field(
        "users",
        description="what an epoch goes through: users, of whose positions one is drawn, so that each counts the same, "
        "as in the metrics; or all positions (the papers), of which long histories have most",
    )
    min_history: int = Field(1, ge=1, description="training histories shorter than this are left out; DTR: 15")
    learning_rate: float | None = Field(
        None, gt=0, description="null: 1.5e-3 where the scorer starts from transitions, else 7e-3"
    )
    weight_decay: float = Field(0.0, ge=0, description="decoupled decay (AdamW) of the layers; embeddings have none")
    schedule: Literal["constant", "linear", "cosine", "exponential"] = "linear"
    warmup_steps: int = Field(100, ge=0)
    decay_steps: int | None = Field(None, ge=1, description="length of the decay; by default the rest of the run")
    floor: float = Field(0.0, ge=0, description="the learning rate never falls below this")
    batch_size: int = Field(64, ge=1)
    max_steps: int = Field(16000, ge=1)
    evaluate_every: int = Field(800, ge=1)
    patience: int = Field(8, ge=1, description="evaluations without a better one before training stops")
    clip_norm: float = Field(5.0, gt=0)
    amsgrad: bool = Field(False, description="Adam divides by the largest second moment so far (the authors' program)")
    embedding_optimizer: EmbeddingOptimizer = "auto"
    bf16: bool | None = Field(
        None,
        description="run the MLP's products in bfloat16 during training (search stays float32); null: where the "
        "processor multiplies bfloat16 itself",
    )
    validation_users: int = Field(2000, ge=1, description="validation queries used while training, drawn once")
    monitor: str = Field(
        "both/f@20",
        description="what chooses the weights: consumed items left in (all), taken out (new), or their mean",
    )
    tree_updates: int = Field(0, ge=0, description="how often the tree is learned anew, evenly over the run")
    learner: Literal["softmax", "binary", "kmeans"] = Field(
        "softmax", description="by the softmax among candidates (DTR), binary likelihood (JTM) or k-means (TDM)"
    )
    stride: int | None = Field(
        None, ge=1, description="levels an item goes at once; null: at most 128 candidates, or one level"
    )
    max_instances: int = Field(30, ge=1, description="training examples of an item that a tree update looks at")
    embeddings: Literal["node", "item"] = Field(
        "item", description="after a tree update, leaf embeddings go with the item, or stay with the node (the program)"
    )
    after_update: Literal["keep", "restart"] = Field(
        "restart",
        description="the optimiser's state and the warm-up after a tree update; restart: the authors' program",
    )
    rollback: bool = Field(False, description="take a tree update back when it lowers the monitored metric")

    @property
    def can_start_from_transitions(self) -> bool:
        """Has the scorer the parts that such a start sets?"""
        return self.unit_coordinate and self.norm == "none" and self.width >= 4 and self.attention_hidden >= 2

    def starts_from_transitions(self, num_items: int) -> bool:
        """What `node_start` means for so many items."""
        return starts_from_transitions(self.node_start, num_items, possible=self.can_start_from_transitions)

    def similarity_columns(self, num_items: int) -> int:
        """What `similarity_width` means for so many items.

        Errors: `InputError` where nothing can fill it, or what `repeat_start` and `repeat_weight` add to it.
        """
        width = self.similarity_width
        if not self.starts_from_transitions(num_items):
            for name in ("similarity_width", "repeat_start", "repeat_weight"):
                if value := getattr(self, name):
                    raise InputError(nothing_fills(f"{name}={value}", num_items))
            return 0
        if width is None:
            width = 256 if num_items <= 50_000 else 128 if num_items <= 200_000 else 64
        return min(width, num_items)

    def neighbours_of(self, num_items: int, mean_history: float) -> int:
        """What `num_neighbours` means for so many items, and training users with so many interactions in the mean.

        Errors: `InputError` where nothing can fill it.
        """
        if not self.starts_from_transitions(num_items):
            if self.num_neighbours:
                raise InputError(nothing_fills(f"num_neighbours={self.num_neighbours}", num_items))
            return 0
        # Session logs and large catalogues need them; elsewhere they bring nothing (benchmarks/results/tree_starts.md).
        needed = mean_history <= 8 or num_items > 200_000
        default = min(128, _MOST_NEIGHBOURS // num_items) if needed else 0
        return min(default if self.num_neighbours is None else self.num_neighbours, num_items)

    def rate(self, num_items: int) -> float:
        """The learning rate: the one that is set, else by where the scorer starts."""
        if self.learning_rate is not None:
            return self.learning_rate
        return 1.5e-3 if self.starts_from_transitions(num_items) else 7e-3

    @model_validator(mode="after")
    def _start_has_its_parts(self) -> Self:
        if self.node_start == "transitions" and not self.can_start_from_transitions:
            raise ValueError(
                "node_start=transitions needs unit_coordinate=true, norm=none, width of 4 or more and attention_hidden "
                "of 2 or more; change these, or set node_start=random"
            )
        return self

    @model_validator(mode="after")
    def _what_is_fixed_has_its_start(self) -> Self:
        for name in ("similarity_width", "num_neighbours", "repeat_start", "repeat_weight"):
            value = getattr(self, name)
            if value and (self.node_start == "random" or not self.can_start_from_transitions):
                raise ValueError(
                    f"{name}={value} belongs to a start from transitions; leave it out, or set node_start=transitions "
                    "with unit_coordinate=true and norm=none"
                )
        for name in ("repeat_start", "repeat_weight"):
            if getattr(self, name) and self.similarity_width == 0:
                raise ValueError(
                    f"{name}={getattr(self, name)} is a part of the similarity; leave out similarity_width=0, or it"
                )
        return self

    @model_validator(mode="after")
    def _some_history_is_long_enough(self) -> Self:
        if sum(self.windows) > MAX_HISTORY:
            raise ValueError(
                f"windows={list(self.windows)} cover {sum(self.windows)} items of a history, above {MAX_HISTORY}; give "
                "shorter windows"
            )
        if self.min_history > sum(self.windows):
            raise ValueError(
                f"min_history={self.min_history} is above {sum(self.windows)}, the sum of windows, which is the "
                "longest history that is looked at; lower min_history"
            )
        return self


def nothing_fills(setting: str, num_items: int) -> str:
    """Why a setting is refused where scores do not start from transitions."""
    return (
        f"{setting} belongs to a start from transitions, which scores of {num_items:,} items start from on request "
        "alone; set node_start=transitions, or leave it out"
    )
