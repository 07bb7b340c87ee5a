"""How the automatic settings of a tree are resolved: its initial tree and scores, and the terms of the score."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from beamwood.errors import InputError
from beamwood.fitting.neighbour_kinds import is_directed
from beamwood.fitting.plan import Facts, embeddings_of, start_of
from beamwood.training.loop_config import EmbeddingOptimiser

if TYPE_CHECKING:
    from beamwood.fitting.tree.settings import TreeConfig, TreeSettings

__all__ = ["takes_neighbours", "tree_plan"]

# Starts that order the items; the order is then placed on the leaves of a tree of the chosen shape.
_ORDERS = ("transitions", "pifa", "category", "random", "kmeans")
# The most neighbours of all items together: 128 MiB, and five times that in training.
_MOST_NEIGHBOURS = 2**24
# The most nodes that an update scores at once for each instance, unless `stride` is set.
_MOST_CANDIDATES = 128


def tree_plan(config: TreeConfig, facts: Facts) -> dict[str, Any]:
    """The automatic values by dotted name.

    Errors: `InputError` where what is set needs a start from transitions, and there is none for so many items.
    """
    tree, optimiser, num_items = config.tree, config.optimiser, facts.num_items
    scores = start_of(config.start.scores, num_items, possible=config.can_start_from_transitions)
    started = scores == "transitions"
    rate = 1.5e-3 if started else 7e-3
    values: dict[str, Any] = {
        "model.similarity_width": _similarity_width(config, num_items, started=started),
        "model.num_neighbours": _num_neighbours(config, facts, started=started),
        "tree.start": _tree_start(tree.start, facts),
        "start.scores": scores,
        "optimiser.learning_rate": rate if optimiser.learning_rate is None else optimiser.learning_rate,
    }
    # The number of nodes of a folder's tree, or of one from codes, is not known before it is read.
    embeddings: EmbeddingOptimiser = "large" if optimiser.embeddings == "auto" else optimiser.embeddings
    if values["tree.start"] in _ORDERS:
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


def takes_neighbours(config: TreeConfig, num_items: int) -> bool:
    """Whether nodes may have lists of neighbours: not in the papers' form, and only with a start from transitions."""
    scores = start_of(config.start.scores, num_items, possible=config.can_start_from_transitions)
    return scores == "transitions" and config.model.num_neighbours != 0 and num_items <= _MOST_NEIGHBOURS


def _num_neighbours(config: TreeConfig, facts: Facts, *, started: bool) -> int:
    """The number of neighbours of a node.

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
