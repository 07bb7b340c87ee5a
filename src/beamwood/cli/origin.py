"""The source of a saved retriever's data, from its manifest, and that data read again."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from beamwood.cli.data_source import DataSource, load_data
from beamwood.cli.native_words import held_back
from beamwood.cli.splits import load_split
from beamwood.data import SPLITS
from beamwood.errors import ArtefactError, InputError, first_problem, nearest
from beamwood.words import followed

if TYPE_CHECKING:
    from beamwood.data import Dataset, Split
    from beamwood.retrieval.retriever import Retriever

__all__ = ["Origin", "dataset_of", "origin_of", "split_of", "split_of_all", "with_origin"]


_Role = Literal["user", "item", "time", "weight"]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)


class _Exact(_Part):
    model_config = ConfigDict(extra="forbid")


class _Data(_Part):
    fingerprint: str
    context: dict[str, str] = Field(default_factory=dict)


class _Options(_Exact):
    """The options of all splits together."""

    seed: int = Field(0, ge=0)
    history_length: int = Field(69, ge=0, le=2**31 - 1)
    valid_share: float = 0.1
    test_share: float = 0.1


class _Split(_Exact):
    name: str
    options: _Options


class Origin(BaseModel):
    """The part of a manifest by which `beamwood fit` records its data, so that they can be read again."""

    # Not strict: in strict mode pydantic accepts only instances of a dataclass.
    model_config = ConfigDict(frozen=True)

    method: str
    data: _Data
    source: DataSource
    split: _Split
    read: dict[_Role, str] = Field(default_factory=dict)
    """The columns that held users, items, times and weights."""

    @property
    def options(self) -> dict[str, Any]:
        """The recorded options of the split."""
        return self.split.options.model_dump(exclude_unset=True)


def with_origin(fitted: Retriever, source: DataSource, split: Split) -> Retriever:
    """The retriever, with the source of its data in its metadata, as `origin_of` reads it."""
    columns = split.dataset.report["log"]["columns"]
    read = {role: columns[role] for role in ("user", "item", "time", "weight") if role in columns}
    origin = {"source": source.as_dict(), "split": {"name": split.name, "options": split.options}, "read": read}
    return replace(fitted, metadata=fitted.metadata | origin)


def origin_of(folder: str, metadata: dict[str, Any]) -> Origin:
    """The origin in a retriever's metadata.

    Errors: a folder not written by a fit, and one with missing or invalid parts.
    """
    if not metadata.get("source"):
        raise InputError(
            f"{folder} names no log, as it was saved in Python, not by `beamwood fit LOG`; evaluate, refit or compare "
            "it there, by beamwood.evaluate, refit and compare, which take the split"
        )
    try:
        origin = Origin.model_validate(metadata)
    except ValidationError as error:
        raise _refused(folder, first_problem(error)) from None
    known = [field.name for field in fields(DataSource)]
    for key in metadata["source"]:
        if key not in known:
            raise _refused(folder, f"source.{key} is unknown{nearest(key, known)}")
    name = origin.split.name
    if name not in SPLITS:
        raise _refused(folder, f"the split {name!r} is unknown{nearest(name, SPLITS)}")
    for key in origin.options:
        if key not in signature(SPLITS[name]).parameters:
            raise _refused(folder, f"the split {name!r} has no option {key!r}")
    return origin


def split_of(folder: str, retriever: Retriever, log: str | None = None, items: str | None = None) -> Split:
    """The split that a saved retriever was fitted on, read again from its log (or from where it has moved)."""
    return split_of_all({folder: retriever}, log, items, place="with --log")


def split_of_all(
    fitted: Mapping[str, Retriever], log: str | None = None, items: str | None = None, *, place: str = "as LOG"
) -> Split:
    """The single split on which saved retrievers, by folder, were fitted; `place`: where a command takes the log.

    Errors: folders of other data or other splits, whose training may contain test users of this one.
    """
    origins = {folder: origin_of(folder, retriever.metadata) for folder, retriever in fitted.items()}
    for folder, retriever in fitted.items():
        _check_tested(folder, retriever)
    first, *others = origins
    origin = origins[first]
    for folder in others:
        if origins[folder].split != origin.split:
            raise InputError(
                f"{folder} was fitted on {_in_words(origins[folder])}, {first} on {_in_words(origin)}: one may "
                "have trained on test users of the other; fit them again with the same --split and --seed"
            )
    source = origin.source
    context = tuple(dict.fromkeys(name for each in origins.values() for name in each.source.context))
    # The folder stores what the model read of the user table.
    dataset, source = dataset_of(first, replace(source, context=context, user_table=None), origin.read, log, items)
    for folder, retriever in fitted.items():
        check_data(folder, retriever, origins[folder], dataset, source, place)
    return load_split(dataset, origin.split.name, origin.options)


def _check_tested(folder: str, retriever: Retriever) -> None:
    """Errors: a refitted model, which trained on the test users."""
    refitted = retriever.metadata.get("refit")
    if refitted is not None:
        before = refitted.get("of") if isinstance(refitted, dict) else None
        which = "the model before it" if before is None else f"{before}, the model before it"
        raise InputError(
            f"{folder} was trained on the test users too by refit, so no test users are left; give {which}"
        )


def dataset_of(
    folder: str, source: DataSource, read: Mapping[_Role, str], log: str | None, items: str | None
) -> tuple[Dataset, DataSource]:
    """The data of a folder's source, and that source; `log` and `items` replace its own; `read`: see `Origin`.

    A refusal of what has moved since the fit names the option for its new place.
    """
    recorded = {"--log": source.log if log is None else None, "--items": source.items if items is None else None}
    gone = [
        option for option, path in recorded.items() if path and not glob.has_magic(path) and not os.path.exists(path)
    ]
    source = replace(source, log=source.log if log is None else log, items=source.items if items is None else items)
    try:
        return load_data(_as_read(source, read)), source
    except InputError as error:
        if not gone:
            raise
        fix = f"if the data of {folder} have moved, give their new place with {' and '.join(gone)}"
        raise InputError(followed(str(error), fix)) from error


def _as_read(source: DataSource, read: Mapping[_Role, str]) -> DataSource:
    """The source with the columns that the fit read, as far as the log has them: others may have been added."""
    from beamwood.data.files.layout import Layout
    from beamwood.data.files.source import open_source

    try:
        with held_back():
            names = open_source(source.log, Layout.of(source.separator, source.columns)).column_names
    except InputError:
        # The reading of the log says why.
        return source
    given = asdict(source)
    known: dict[str, Any] = {role: name for role, name in read.items() if not given[role] and name in names}
    return replace(source, **known)


def _in_words(origin: Origin) -> str:
    """The split as options."""
    return f"--split {origin.split.name} --seed {origin.split.options.seed}"


def check_data(
    folder: str, retriever: Retriever, origin: Origin, dataset: Dataset, source: DataSource, place: str
) -> None:
    """Errors: data other than those that a saved retriever was fitted on."""
    known = dataset.fingerprint() == origin.data.fingerprint
    if not known and not retriever.items.ids.equals(dataset.items.ids):
        raise InputError(
            f"{folder} was fitted on {len(retriever.items):,} items, {source.log} and its item table have "
            f"{len(dataset.items):,}, or others; give the old item table with --items, the old log {place}, or fit "
            "again"
        )
    if not known:
        raise InputError(
            f"{source.log} is not the log that {folder} was fitted on (its content has changed), so its test users "
            f"may have been trained on; fit again or give the old log {place}"
        )
    digests = dataset.context_digests()
    for name, digest in origin.data.context.items():
        if digests.get(name) != digest:
            raise InputError(
                f"the column '{name}' of {source.log} is not what {folder} was fitted on (its content has changed); "
                f"fit again or give the old log {place}"
            )
    for name, kept, read in (("items", retriever.items, dataset.items), ("users", retriever.users, dataset.users)):
        if kept is not None and not kept.ids.equals(read.ids):
            raise ArtefactError(f"{folder}: its {name} are not those of {source.log}; fit again")


def _refused(folder: str, why: str) -> ArtefactError:
    fix = "it was not written by this version: fit and save it again"
    return ArtefactError(followed(f"{folder}/manifest.json: {why}", fix))
