"""Times whose zone is an offset such as +05:30, which Arrow reads and Polars does not."""

from __future__ import annotations

import base64
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl

from beamwood.extras import asking_for

__all__ = ["are_offsets", "file_with_offsets", "has_offsets", "table_with_offsets"]

_OFFSET = re.compile(rb"[+-]\d\d:\d\d")
_ARROW_SCHEMA = re.compile(rb"ARROW:schema[^A-Za-z0-9+/]*([A-Za-z0-9+/]+=*)")
_HEAD = 2**16
# The first bytes of an Arrow file and of a stream.
_ARROW = (b"ARROW1", b"\xff\xff\xff\xff")


def are_offsets(error: BaseException) -> bool:
    """Whether Polars failed on a zone without a name."""
    return "parse time zone" in str(error)


def has_offsets(path: Path) -> bool:
    """Whether the schema of a Parquet or Arrow file may have such a zone; checked first, as Polars panics on it."""
    with suppress(OSError, ValueError), path.open("rb") as file:
        head = file.read(_HEAD)
        if not head.startswith(b"PAR1"):
            return head.startswith(_ARROW) and _OFFSET.search(head) is not None
        file.seek(-8, 2)
        length = int.from_bytes(file.read(4), "little")
        file.seek(-8 - length, 2)
        found = _ARROW_SCHEMA.search(file.read(length))
        return found is not None and _OFFSET.search(base64.b64decode(found[1] + b"==")) is not None
    return False


def file_with_offsets(path: Path) -> pl.LazyFrame:
    """The table of a Parquet or Arrow file, with its times in UTC. Errors: `OSError`, also for a damaged file."""
    with asking_for(f"{path} has times whose zone is an offset"):
        import pyarrow as pa
        from pyarrow import parquet
    with path.open("rb") as file:
        start = file.read(6)
    try:
        if start.startswith(b"PAR1"):
            return table_with_offsets(parquet.ParquetFile(path).read()).lazy()
        with pa.memory_map(str(path)) as file:
            table = (pa.ipc.open_file(file) if start == _ARROW[0] else pa.ipc.open_stream(file)).read_all()
            # Wrong offsets within its buffers would end the process.
            table.validate(full=True)
            return table_with_offsets(table).lazy()
    except pa.ArrowMemoryError:
        raise
    except pa.ArrowException as error:
        raise OSError(str(error)) from error


def table_with_offsets(source: Any) -> pl.DataFrame:
    """An Arrow or pandas table as a Polars frame, with its times in UTC."""
    import pyarrow as pa

    table = source if isinstance(source, pa.Table) else pa.Table.from_pandas(source, preserve_index=False)
    fields = [
        field.with_type(pa.timestamp(field.type.unit, "UTC")) if _is_offset(field.type) else field
        for field in table.schema
    ]
    frame = pl.from_arrow(table.cast(pa.schema(fields)))
    assert isinstance(frame, pl.DataFrame)
    return frame


def _is_offset(dtype: Any) -> bool:
    import pyarrow as pa

    return pa.types.is_timestamp(dtype) and _OFFSET.fullmatch((dtype.tz or "").encode()) is not None
