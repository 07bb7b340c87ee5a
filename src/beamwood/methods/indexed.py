"""Any index over the item vectors of a fitted model: two towers, sequence models, DIN or trees.

Source: DTR, section 6 (its rivals ScaNN, IPNSW, QINCo and ROTLEX index the item vectors of a trained DIN, and query
with the mean of the history's vectors).
"""

from __future__ import annotations

import functools
from typing import Any

from beamwood.data.split import Split
from beamwood.errors import InputError
from beamwood.fitting.blend import choice_of_seen
from beamwood.fitting.fitted import load_fitted, method_of
from beamwood.fitting.method_config import MethodConfig
from beamwood.fitting.settings import SeenChoiceSettings
from beamwood.fitting.vectors.index_settings import IndexChoiceSettings
from beamwood.fitting.vectors.indexing import IndexBuilder, blend_with_seen
from beamwood.fitting.vectors.settings import FolderStartSettings
from beamwood.methods.method import Fitted, Method, Needs
from beamwood.retrieval.item_vectors import part_with
from beamwood.retrieval.retriever import Retriever
from beamwood.retrieval.searchers.candidates import find_candidates
from beamwood.retrieval.searchers.queries import HistoryMean
from beamwood.retrieval.searchers.tree import TreeSearcher
from beamwood.retrieval.searchers.vectors import VectorSearcher
from beamwood.training.budget import Budget
from beamwood.types import Searcher

__all__ = ["METHOD", "Config"]


class Config(MethodConfig):
    """The folder with the fitted vectors, and the index."""

    start: FolderStartSettings = FolderStartSettings()
    choose: SeenChoiceSettings = SeenChoiceSettings()
    index: IndexChoiceSettings = IndexChoiceSettings()


def vectors_of(fitted: Retriever, folder: str) -> VectorSearcher:
    """Exact search over the item vectors of a fitted model. Errors: a model without any, such as a counting one."""
    searcher = fitted.searcher
    found = part_with(searcher, VectorSearcher)
    if found is not None:
        return found
    tree = part_with(searcher, TreeSearcher)
    if tree is None:
        raise InputError(
            f"start.folder='{folder}' holds {method_of(fitted)}, which has no item vectors; give one that has, "
            "such as two_tower, sasrec or din"
        )
    shape = tree.tree.shape
    own = tree.weights.nodes[shape.level_offset(shape.depth) + tree.tree.leaf_of_item]
    return VectorSearcher(HistoryMean(own, length=tree.weights.history_length), own)


def build(split: Split, config: Config, seed: int, budget: Budget) -> tuple[Searcher, dict[str, Any]]:
    """Build the index over the vectors, and choose the weight of seen items."""
    folder = config.start.folder
    assert folder is not None
    builder = IndexBuilder(split, config.index, seed=seed)
    began = budget.clock()
    searcher = builder.build(vectors_of(load_fitted(folder, split), folder), budget)
    seconds = budget.clock() - began
    choice = choice_of_seen(split, config.choose, seed, functools.partial(find_candidates, apart=True))
    seen_weight = (config.choose.seen_weight or 0.0) if choice is None else choice.made_for(searcher)
    return blend_with_seen(searcher, seen_weight, split), {"seconds": round(seconds, 3), "seen_weight": seen_weight}


# Section 6 of the paper; where it gives no value, the default of the rival's program.
IPNSW = {"index.kind": "hnsw", "index.num_links": 16, "index.build_width": 100, "index.search_width": 150}
# The paper mentions no exact reordering, so there is none.
SCANN = {
    "index.kind": "scann",
    "index.num_buckets": 2000,
    "index.num_probed": 1000,
    "index.block_width": 4,
    "index.num_codewords": 16,
    "index.threshold": 0.2,
    "index.num_reordered": 0,
}

ROTLEX = {"index.kind": "rotlex", "index.num_children": 32, "index.hidden": 512, "index.num_epochs": 60}
ROTLEX |= {"index.regroup_every": 20}
QINCO = {"index.kind": "qinco", "index.num_codes": 8, "index.num_codewords": 256, "index.num_layers": 4}
QINCO |= {"index.hidden": 256, "index.num_near": None, "index.rate": 1e-4}
PAPERS = {"ipnsw": IPNSW, "scann": SCANN, "qinco": QINCO, "rotlex": ROTLEX}

METHOD = Method(
    name="indexed",
    summary="any index over the vectors of a fitted model (`--from`): two towers, sequence models, DIN or a tree",
    Config=Config,
    build=build,
    needs=Needs(fitted=(Fitted("start.folder", "--from"),)),
    presets={f"paper-{name}": {**preset, "choose.seen_weight": 0.0} for name, preset in PAPERS.items()},
)
