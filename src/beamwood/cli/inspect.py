"""`beamwood inspect`: what a saved folder holds."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from beamwood.cli import options as o
from beamwood.cli.inputs import print_json

__all__ = ["inspect"]


def inspect(
    folder: Annotated[str, typer.Argument(help="A folder that `beamwood fit` saved.")],
    json: o.Json = False,
) -> None:
    """Verify a folder's hashes and show its method, configuration, data, tree and files."""
    from beamwood.retrieval.retriever import Retriever

    retriever = Retriever.load(folder)
    document: dict[str, Any] = {
        "folder": folder,
        "searcher": retriever.searcher.kind,
        "items": len(retriever.items),
        "users": None if retriever.users is None else len(retriever.users),
        "item_id_type": str(retriever.items.ids.dtype),
        "categories": retriever.categories is not None,
    } | retriever.metadata
    tree = getattr(retriever.searcher, "tree", None)
    if tree is not None:
        shape = tree.shape
        document["tree"] = {
            "root_fanout": shape.root_fanout,
            "branching": shape.branching,
            "depth": shape.depth,
            "leaves": shape.capacity,
            "empty_leaves": shape.capacity - tree.num_items,
            "nodes": shape.num_nodes,
            "beam_width": retriever.searcher.beam_width,  # type: ignore[attr-defined]
        }
    if json:
        print_json(document)
        return
    for name, value in document.items():
        if isinstance(value, dict):
            print(f"{name}:")
            for key, inner in value.items():
                print(f"  {key}: {inner}")
        else:
            print(f"{name}: {value}")
