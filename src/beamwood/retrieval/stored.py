"""The stored configuration of searchers: validated when read, with one kind of error for any inconsistency."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import polars as pl
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from beamwood.errors import ArtefactError, NotInstalledError, UnknownSearcherError, first_problem
from beamwood.words import followed

__all__ = ["MOST", "StoredConfig", "StoredPart", "exported_part", "part_of", "prefixed", "restoring"]

# The largest count in a configuration, so that it fits every integer type used.
MOST = 2**31 - 1


class StoredConfig(BaseModel):
    """The `searcher_config` of a searcher: exact types, no unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class StoredPart(StoredConfig):
    """A part within another's configuration: its kind, and its `export`."""

    kind: str
    config: dict[str, Any]


class _Exports(Protocol):
    @property
    def kind(self) -> str: ...

    def export(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]: ...


def exported_part(part: _Exports) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """A searcher, an index or query vectors as part of another: what `StoredPart` reads, and the arrays."""
    config, arrays = part.export()
    return {"kind": part.kind, "config": config}, arrays


def prefixed(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The arrays of a part under prefixed names."""
    return {f"{prefix}.{name}": array for name, array in arrays.items()}


def part_of(arrays: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    """The arrays named by `prefixed`, under their own names."""
    start = f"{prefix}."
    return {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}


@contextmanager
def restoring(folder: str | Path, what: str) -> Iterator[None]:
    """A context in which any error because `what` of the folder does not fit becomes an `ArtefactError` with the fix.

    For restoring stored parts only: elsewhere these types of errors are bugs.
    """
    fix = "it was not written by this version: fit and save it again"
    try:
        yield
    except (NotInstalledError, UnknownSearcherError):
        raise
    except ValidationError as error:
        raise ArtefactError(followed(f"{folder}: {what}: {first_problem(error)}", fix)) from error
    except KeyError as missing:
        raise ArtefactError(f"{folder}: {what} lacks {missing}; {fix}") from missing
    except (MemoryError, RecursionError) as error:
        raise ArtefactError(f"{folder}: {what} is too large to be restored; {fix}") from error
    except (TypeError, ValueError, IndexError, OverflowError, pl.exceptions.PolarsError) as error:
        raise ArtefactError(followed(f"{folder}: {what}: {error}", fix)) from error
