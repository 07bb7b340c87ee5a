"""`beamwood similar`, `score` and `export`: items of a saved retriever."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, cast

import numpy as np
import polars as pl
import typer

from beamwood import load
from beamwood.blocks import blocks
from beamwood.cli import options as o
from beamwood.cli.commands.recommend import allowed_of
from beamwood.cli.listed import parse_history, read_id_lines
from beamwood.cli.output import on_one_line, print_json, writing_to
from beamwood.errors import InputError
from beamwood.retrieval.resolve import of_users
from beamwood.retrieval.similar import By
from beamwood.steps import tell
from beamwood.words import counted

__all__ = ["export", "score", "similar"]

_Item = Annotated[list[str], typer.Option("--item", metavar="ID", help="An item; repeatable.")]
_By = Annotated[str, typer.Option("--by", metavar="WORD", help="Measure of similarity: model, vectors or tree.")]
_Where = Annotated[
    o.Text, typer.Option("--where", metavar="TEXT", help="Condition on item columns, as in `recommend`.")
]
_Category = Annotated[o.Texts, typer.Option("--category", metavar="NAME", help="Only items of this category.")]
_Items = Annotated[str, typer.Option("--items", metavar="FILE", help="A file of item ids to rank, one per line.")]
_User = Annotated[o.Text, typer.Option("--user", metavar="ID", help="A user of the log.")]
_History = Annotated[o.Text, typer.Option("--history", metavar="IDS", help="Item ids, oldest first: 5,9,2.")]
_Vectors = Annotated[
    str,
    typer.Option("--vectors", metavar="FILE", help="The .parquet file to write: item, vector and, for trees, bias."),
]
_Overwrite = Annotated[bool, typer.Option("--overwrite", help="Overwrite the file.")]
_BLOCK_ROWS = 100_000


def similar(
    folder: o.FittedFolder,
    *,
    item: _Item,
    by: _By = "model",
    k: o.NumItems = None,
    category: _Category = None,
    where: _Where = None,
    method: o.MethodFile = None,
    json: o.Json = False,
) -> None:
    """Find items that are similar to given ones."""
    from beamwood.retrieval.columns.where_text import parse_where

    retriever = load(folder, method)
    found = retriever.similar(
        retriever.items.parse_all(item),
        min(10, len(retriever.items)) if k is None else k,
        by=cast(By, by),
        allowed=allowed_of(retriever.names, category, None, "error"),
        where=None if where is None else parse_where(where, retriever.names.filters.columns),
    )
    _print_order(found.item_ids[0], found.scores[0], json=json)


def score(
    folder: o.FittedFolder,
    *,
    items: _Items,
    user: _User = None,
    history: _History = None,
    method: o.MethodFile = None,
    json: o.Json = False,
) -> None:
    """Rank a given list of items for a user or a history, best first."""
    retriever = load(folder, method)
    if (user is None) == (history is None):
        raise InputError("give either --user or --history")
    if user is not None and retriever.users is None:
        raise InputError(f"{folder} keeps no users; give --history")
    listed = list(dict.fromkeys(retriever.items.parse_all(read_id_lines(items, "--items", retriever.items))))
    histories = None if history is None else [retriever.items.parse_all(parse_history(history))]
    with of_users(retriever.searcher.needs):
        users = None if user is None or retriever.users is None else [retriever.users.parse(user)]
    (scores,) = retriever.score(histories, [listed], users=users)
    # Ties by the item's index, as in every search.
    order = np.lexsort((retriever.items.encode(listed), -scores))
    _print_order([listed[at] for at in order], [float(scores[at]) for at in order], json=json)


def export(
    folder: o.FittedFolder, *, vectors: _Vectors, overwrite: _Overwrite = False, method: o.MethodFile = None
) -> None:
    """Write the items' vectors for another vector database; their inner product with a query's is the score.

    Those of a method of vectors, or of a tree's light head, with a column `bias` that is added to the product.
    """
    from polars.io.plugins import register_io_source

    from beamwood.artefact.replace import PARQUET_MARK
    from beamwood.retrieval.batch.job import check_file
    from beamwood.retrieval.item_vectors import exported

    if Path(vectors).suffix != ".parquet":
        raise InputError(f"--vectors {vectors} must end in .parquet")
    retriever = load(folder, method)
    export = exported(retriever.searcher)
    target = check_file(vectors, overwrite=overwrite, option="--vectors", columns=("item", "vector"))
    ids, filters = retriever.items.ids, retriever.names.filters
    schema: dict[str, pl.DataType] = {"item": ids.dtype, "vector": pl.Array(pl.Float32, export.width)}
    schema |= {} if export.biases is None else {"bias": pl.Float32()}

    def rows(*_: object) -> Iterator[pl.DataFrame]:
        for block in blocks(len(ids), _BLOCK_ROWS):
            items = block[filters.may_show(block)]
            columns = {"item": ids.gather(items), "vector": export.of(items)}
            columns |= {} if export.biases is None else {"bias": export.biases(items)}
            yield pl.DataFrame(columns, schema=schema)

    with writing_to(target) as fresh:
        try:
            register_io_source(rows, schema=schema).sink_parquet(fresh, metadata=PARQUET_MARK)
        except pl.exceptions.PolarsError as error:
            raise OSError(error) from error
    number = int(filters.may_show(np.arange(len(ids))).sum())
    tell(f"wrote {target}: {counted(number, 'vector')} of width {export.width}, {export.what}")


def _print_order(items: list[object], scores: list[float], *, json: bool) -> None:
    if json:
        print_json({"items": items, "scores": scores})
        return
    for rank, (item, value) in enumerate(zip(items, scores, strict=True), start=1):
        print(f"  {rank:>3}  {on_one_line(item)}  {value:z.4f}")
