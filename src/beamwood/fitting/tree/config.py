"""The configuration of a tree retriever, and how its automatic settings are resolved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from pydantic import model_validator

from beamwood.errors import InputError
from beamwood.fitting.neighbour_kinds import is_directed
from beamwood.fitting.plan import Facts, embeddings_of, start_of
from beamwood.fitting.settings import LoopSettings, SeenChoiceSettings, TrainedConfig
from beamwood.fitting.tree.settings import (
    ORDERS,
    DtrLossSettings,
    TreeExampleSettings,
    TreeLossSettings,
    TreeModelSettings,
    TreeOptimiserSettings,
    TreeSettings,
    TreeStartSettings,
)
from beamwood.kernels.din import MAX_HISTORY
from beamwood.steps import tell
from beamwood.training.loop_config import EmbeddingOptimiser

if TYPE_CHECKING:
    from beamwood.data.split import Split

__all__ = ["DtrConfig", "TreeConfig"]

# The most neighbours of all items together: 128 MiB, and five times that in training.
_MOST_NEIGHBOURS = 2**24
# The most nodes that an update scores at once for each instance, unless `stride` is set.
_MOST_CANDIDATES = 128


class TreeConfig(TrainedConfig):
    """How a tree retriever is built and trained; the defaults were chosen on validation data of `ml1m` and others.

    The papers' own values where ours differ are `papers.DTR_STUDY`.
    """

    model: TreeModelSettings = TreeModelSettings()
    tree: TreeSettings = TreeSettings()
    start: TreeStartSettings = TreeStartSettings()
    examples: TreeExampleSettings = TreeExampleSettings()
    loss: TreeLossSettings = TreeLossSettings()
    optimiser: TreeOptimiserSettings = TreeOptimiserSettings(learning_rate=None, warmup_steps=100)
    loop: LoopSettings = LoopSettings(max_steps=16000, evaluate_every=800)
    choose: SeenChoiceSettings = SeenChoiceSettings(monitor="both/f@20")

    @property
    def can_start_from_transitions(self) -> bool:
        """Whether the scorer has the parts that such a start initialises."""
        model = self.model
        return model.unit_coordinate and model.norm == "none" and model.width >= 4 and model.attention_hidden >= 2

    def resolved(self, facts: Facts) -> dict[str, Any]:
        """The automatic values by dotted name.

        Errors: `InputError` where what is set needs a start from transitions, and there is none for so many items.
        """
        tree, optimiser, num_items = self.tree, self.optimiser, facts.num_items
        scores = start_of(self.start.scores, num_items, possible=self.can_start_from_transitions)
        started = scores == "transitions"
        rate = 1.5e-3 if started else 7e-3
        values: dict[str, Any] = {
            "model.similarity_width": _similarity_width(self, num_items, started=started),
            "model.num_neighbours": _num_neighbours(self, facts, started=started),
            "tree.start": _tree_start(tree.start, facts),
            "start.scores": scores,
            "optimiser.learning_rate": rate if optimiser.learning_rate is None else optimiser.learning_rate,
        }
        # The number of nodes of a folder's tree, or of one from codes, is not known before it is read.
        embeddings: EmbeddingOptimiser = "large" if optimiser.embeddings == "auto" else optimiser.embeddings
        if values["tree.start"] in ORDERS:
            shape = tree.shape_of(num_items)
            values |= {"tree.shape": (shape.root_fanout, shape.depth), "tree.spare": None}
            embeddings = embeddings_of(optimiser.embeddings, shape.num_nodes)
        elif tree.spare is not None:
            raise InputError(
                f"tree.spare={tree.spare} is room in a tree that is built of an order of the items, which "
                f"tree.start={tree.start} is not; leave it out"
            )
        elif tree.start == "flat":
            embeddings = embeddings_of(optimiser.embeddings, num_items)
        values["optimiser.embeddings"] = embeddings
        if tree.updates and tree.learner != "kmeans":
            values["tree.stride"] = tree.stride or _stride(tree)
        return values

    def chosen(self, split: Split, options: Mapping[str, Any]) -> dict[str, Any]:
        """The kind of neighbours, where nodes may have them, and the horizon, where only the next item counts."""
        if self.model.neighbours is not None:
            self._tell_of_no_neighbours(split, options)
            return {}
        if not _takes_neighbours(self, split.train.num_items):
            return {}
        from beamwood.fitting.neighbour_choice import chosen_neighbours

        kind = chosen_neighbours(split, self.choose, options)
        next_alone = {name: 1 for name in ("examples.horizon", "examples.num_targets") if name not in self.given}
        asks_for_one = int(split.valid.labels.lengths.max(initial=0)) == 1
        return {"model.neighbours": kind} | (next_alone if asks_for_one and kind == "next" else {})

    def _tell_of_no_neighbours(self, split: Split, options: Mapping[str, Any]) -> None:
        """Print a line where only terms of the user's own would read the kind that is set."""
        plan = self.plan(Facts.of(split.train))
        if plan.model.num_neighbours or not options.get("progress", True):
            return
        need, fix = "", "model.num_neighbours above 0"
        if plan.start.scores != "transitions":
            need, fix = " or a start from transitions", "start.scores=transitions"
        tell(
            f"model.neighbours={plan.model.neighbours} has no effect without terms of your own{need}; set {fix}, or "
            "leave it out"
        )

    @property
    def added(self) -> dict[str, float | None]:
        """The terms added for seen items."""
        return {"start.seen": self.start.seen, "choose.seen_weight": self.choose.seen_weight}

    @model_validator(mode="after")
    def _start_has_its_parts(self) -> Self:
        if self.start.scores == "transitions" and not self.can_start_from_transitions:
            raise ValueError(
                "start.scores=transitions needs model.unit_coordinate=true, model.norm=none, model.width of 4 or more "
                "and model.attention_hidden of 2 or more; change these, or set start.scores=random"
            )
        return self

    @model_validator(mode="after")
    def _what_is_kept_at_1_has_no_decay(self) -> Self:
        optimiser = self.optimiser
        if self.model.unit_coordinate and optimiser.weight_decay and optimiser.decay == "coupled":
            raise ValueError(
                "optimiser.decay=coupled decays the coordinate that model.unit_coordinate=true keeps at 1; set "
                "model.unit_coordinate=false, or optimiser.decay=decoupled"
            )
        return self

    @model_validator(mode="after")
    def _what_is_fixed_has_its_start(self) -> Self:
        fixed = {
            "model.similarity_width": self.model.similarity_width,
            "model.num_neighbours": self.model.num_neighbours,
        }
        for name, value in (fixed | self.added).items():
            if value and (self.start.scores == "random" or not self.can_start_from_transitions):
                raise ValueError(
                    f"{name}={value} belongs to a start from transitions; leave it out, or set "
                    "start.scores=transitions with model.unit_coordinate=true and model.norm=none"
                )
        for name, value in self.added.items():
            if value and self.model.similarity_width == 0:
                raise ValueError(
                    f"{name}={value} is a part of the similarity; leave out model.similarity_width=0, or it"
                )
        return self

    @model_validator(mode="after")
    def _some_history_is_long_enough(self) -> Self:
        windows, length = self.model.windows, sum(self.model.windows)
        if length > MAX_HISTORY:
            raise ValueError(
                f"model.windows={list(windows)} cover {length} items of a history, above {MAX_HISTORY}; give shorter "
                "windows"
            )
        if self.examples.min_history > length:
            raise ValueError(
                f"examples.min_history={self.examples.min_history} is above {length}, the sum of model.windows, which "
                "is the longest history that is looked at; lower examples.min_history"
            )
        return self


class DtrConfig(TreeConfig):
    """Levels by softmax; each further form of labels has its own settings."""

    loss: DtrLossSettings = DtrLossSettings()

    def resolved(self, facts: Facts) -> dict[str, Any]:
        """The paper's draws, and walks as they were measured: each scores the children of every node on its way."""
        draws = self.loss.num_negatives or (20 if self.loss.negatives == "tree" else 70)
        return super().resolved(facts) | {"loss.num_negatives": draws}


def _similarity_width(config: TreeConfig, num_items: int, *, started: bool) -> int:
    """The width of the similarity, at most the number of items."""
    width = config.model.similarity_width
    if not started:
        for name, value in {"model.similarity_width": width, **config.added}.items():
            if value:
                raise InputError(_nothing_fills(f"{name}={value}", num_items))
        return 0
    if width is None:
        width = 256 if num_items <= 50_000 else 128 if num_items <= 200_000 else 64
    return min(width, num_items)


def _takes_neighbours(config: TreeConfig, num_items: int) -> bool:
    """Whether nodes may have lists of neighbours: not in the papers' form, and only with a start from transitions."""
    scores = start_of(config.start.scores, num_items, possible=config.can_start_from_transitions)
    return scores == "transitions" and config.model.num_neighbours != 0 and num_items <= _MOST_NEIGHBOURS


def _num_neighbours(config: TreeConfig, facts: Facts, *, started: bool) -> int:
    """The number of neighbours of an item.

    They help on session logs, on large catalogues, and where order matters; elsewhere the similarity captures the same
    (docs/lab/LOG.md).
    """
    given, num_items = config.model.num_neighbours, facts.num_items
    if not started:
        if given:
            raise InputError(_nothing_fills(f"model.num_neighbours={given}", num_items))
        return 0
    needed = facts.mean_history <= 8 or num_items > 200_000 or is_directed(config.model.neighbours)
    default = min(128, _MOST_NEIGHBOURS // num_items) if needed else 0
    return min(default if given is None else given, num_items)


def _tree_start(start: str, facts: Facts) -> str:
    if start == "papers":
        return "category" if facts.has_categories else "random"
    if start == "auto":
        return "transitions" if start_of("auto", facts.num_items) == "transitions" else "pifa"
    return start


def _stride(tree: TreeSettings) -> int:
    """The largest stride with an acceptable number of candidates, at least 1."""
    return max(1, next(d for d in range(9, -1, -1) if d == 0 or tree.branching**d <= _MOST_CANDIDATES))


def _nothing_fills(setting: str, num_items: int) -> str:
    """The message that a setting needs scores that start from transitions."""
    return (
        f"{setting} belongs to a start from transitions, which scores of {num_items:,} items start from on request "
        "alone; set start.scores=transitions, or leave it out"
    )
