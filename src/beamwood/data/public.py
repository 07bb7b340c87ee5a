"""Public data sets by name: fetched from their publishers, checked, converted; never shipped with the package."""

from __future__ import annotations

import hashlib
import http.client
import io
import os
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from beamwood.arguments import naming_arguments
from beamwood.errors import InputError, nearest

__all__ = ["PUBLIC_SETS", "OnProgress", "PublicFiles", "PublicSet", "fetch"]

OnProgress = Callable[[int, int | None], None]
_BLOCK = 1 << 18
_TIMEOUT = 30.0


@dataclass(frozen=True, slots=True)
class PublicSet:
    """The address, SHA-256 and terms of an archive; `convert` returns its frames of interactions and items."""

    title: str
    url: str
    sha256: str
    terms: str
    citation: str
    convert: Callable[[zipfile.ZipFile], tuple[pl.DataFrame, pl.DataFrame]]

    def lines(self) -> list[str]:
        """The title, terms and citation, to be shown before the data are used."""
        return [f"{self.title}, {self.url}", f"terms: {self.terms}", f"cite: {self.citation}"]


@dataclass(frozen=True, slots=True)
class PublicFiles:
    """The converted files: `read_log(interactions)`, `Dataset.from_log(log, items)`."""

    interactions: Path
    items: Path


@naming_arguments
def fetch(
    name: str,
    folder: str | os.PathLike[str],
    *,
    on_progress: OnProgress | None = None,
    known: Mapping[str, PublicSet] | None = None,
) -> PublicFiles:
    """Download the data set `name` as Parquet files into `folder`/`name`, unless it exists.

    `on_progress` receives the bytes read so far and the total, None if the server does not state it. The files are
    written atomically. Errors: an unknown name, no connection, a different checksum, an unexpected archive layout.
    """
    known = PUBLIC_SETS if known is None else known
    if name not in known:
        raise InputError(f"public data set '{name}' is unknown{nearest(name, known)}")
    place = Path(folder) / name
    files = PublicFiles(place / "interactions.parquet", place / "items.parquet")
    if files.interactions.exists() and files.items.exists():
        return files
    wanted = known[name]
    archive = _download(name, wanted, on_progress)
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            interactions, items = wanted.convert(opened)
    except (zipfile.BadZipFile, KeyError, pl.exceptions.PolarsError) as error:
        raise InputError(f"{name}: the archive of {wanted.url} has an unexpected layout: {error}") from error
    place.mkdir(parents=True, exist_ok=True)
    (place / "TERMS.txt").write_text("\n".join(wanted.lines()) + "\n", encoding="utf-8")
    _write(items, files.items)
    _write(interactions, files.interactions)
    return files


def _download(name: str, wanted: PublicSet, on_progress: OnProgress | None) -> bytes:
    content, digest = bytearray(), hashlib.sha256()
    try:
        with urllib.request.urlopen(wanted.url, timeout=_TIMEOUT) as answer:
            length = answer.headers.get("Content-Length")
            total = int(length) if length else None
            while block := answer.read(_BLOCK):
                content += block
                digest.update(block)
                if on_progress is not None:
                    on_progress(len(content), total)
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise InputError(
            f"{name} cannot be fetched from {wanted.url}: {reason}; check the connection, or give a "
            "log you have as a file"
        ) from error
    if digest.hexdigest() != wanted.sha256:
        raise InputError(
            f"{name}: what {wanted.url} sent has SHA-256 {digest.hexdigest()}, expected {wanted.sha256} "
            f"({len(content):,} bytes read); try again, and do not use the file if it stays different"
        )
    return bytes(content)


def _write(frame: pl.DataFrame, path: Path) -> None:
    # In a folder of its own, as a temporary file would be readable by its owner alone.
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        fresh = Path(folder, path.name)
        frame.write_parquet(fresh, compression="zstd")
        fresh.replace(path)


def _table(archive: zipfile.ZipFile, member: str, separator: str, names: list[str]) -> pl.DataFrame:
    """The first columns of a table without header in Latin-1, every cell as text."""
    text = archive.read(member).decode("latin-1").replace(separator, "\t").encode()
    frame = pl.read_csv(io.BytesIO(text), separator="\t", has_header=False, quote_char=None, infer_schema=False)
    return frame.rename(dict(zip(frame.columns, names, strict=False)))


def _ratings(archive: zipfile.ZipFile, member: str, separator: str) -> pl.DataFrame:
    frame = _table(archive, member, separator, ["user_id", "item_id", "rating", "timestamp"])
    numbers = frame.select(pl.col("user_id", "item_id", "timestamp").cast(pl.Int64), pl.col("rating").cast(pl.Float32))
    return numbers.sort("user_id", "timestamp", maintain_order=True)


def _movielens_100k(archive: zipfile.ZipFile) -> tuple[pl.DataFrame, pl.DataFrame]:
    genres = _table(archive, "ml-100k/u.genre", "|", ["name", "number"])["name"].drop_nulls().to_list()
    names = ["item_id", "title", "released", "video", "url", *genres]
    items = _table(archive, "ml-100k/u.item", "|", names)
    flags = [pl.when(pl.col(genre) == "1").then(pl.lit(genre)) for genre in genres]
    category = pl.concat_str(flags, separator="|", ignore_nulls=True).alias("category")
    return _ratings(archive, "ml-100k/u.data", "\t"), items.select(pl.col("item_id").cast(pl.Int64), category, "title")


def _movielens_1m(archive: zipfile.ZipFile) -> tuple[pl.DataFrame, pl.DataFrame]:
    items = _table(archive, "ml-1m/movies.dat", "::", ["item_id", "title", "category"])
    return (
        _ratings(archive, "ml-1m/ratings.dat", "::"),
        items.select(pl.col("item_id").cast(pl.Int64), "category", "title"),
    )


_GROUPLENS_TERMS = (
    "research use; acknowledge GroupLens in publications; no redistribution and no commercial use without permission"
)
_MOVIELENS = "F. M. Harper and J. A. Konstan, The MovieLens Datasets: History and Context, ACM TiiS 5(4), 2015"
_GROUPLENS_FILES = "https://files.grouplens.org/datasets/movielens"

PUBLIC_SETS: Mapping[str, PublicSet] = {
    "ml-100k": PublicSet(
        "MovieLens 100K",
        f"{_GROUPLENS_FILES}/ml-100k.zip",
        "50d2a982c66986937beb9ffb3aa76efe955bf3d5c6b761f4e3a7cd717c6a3229",
        _GROUPLENS_TERMS,
        _MOVIELENS,
        _movielens_100k,
    ),
    "ml-1m": PublicSet(
        "MovieLens 1M",
        f"{_GROUPLENS_FILES}/ml-1m.zip",
        "a6898adb50b9ca05aa231689da44c217cb524e7ebd39d264c56e2832f2c54e20",
        _GROUPLENS_TERMS,
        _MOVIELENS,
        _movielens_1m,
    ),
}
