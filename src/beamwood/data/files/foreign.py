"""Unsupported file formats: what each is, and the command that converts it."""

from __future__ import annotations

import re
import shlex
import zipfile
from pathlib import Path

from beamwood.data.files.layout import separator_of

__all__ = ["as_utf8", "begins_as", "in_other_words", "why_unread"]

_UNPACKED = {
    ".parquet.gz": "gunzip -k",
    ".bz2": "bunzip2 -k",
    ".xz": "unxz -k",
    ".7z": "7z x",
    ".rar": "unrar x",
    ".lz4": "lz4 -d",
    ".br": "brotli -d",
    ".zst": "zstd -d",
    **dict.fromkeys((".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst"), "tar -xf"),
}
_SHEETS = (".xlsx", ".xls", ".xlsm", ".ods", ".numbers")
_OTHERS = {
    (".pkl", ".pickle"): "is a pickle, which may run code and is not read; in Python, give read_log the frame in it",
    (".npy",): "is an array, which has no names; in Python, give read_log numpy.load of it and a header",
    (".h5", ".hdf5", ".mat"): "is read in Python alone; give read_log the frame, the array or the sparse matrix in it",
    (".sql", ".dump"): "is a dump of a database; load it there, and export the table as CSV with a line of names",
    (".avro", ".orc", ".xml", ".rdata", ".rds", ".sav", ".dta"): "is of a kind that is not read; write it as Parquet",
}
_BASES = (".db", ".sqlite", ".sqlite3")
_BEGINS = {b"PAR1": ".parquet", b"ARROW1": ".arrow", b"\x1f\x8b": ".gz", b"PK\x03\x04": ".zip"}
_SHOWN = 3
_HEAD = 65_536


def why_unread(path: Path) -> str | None:
    """The reason why a file with an unsupported suffix is not read, and the fix; None for an unknown suffix."""
    name, quoted = path.name.lower(), shlex.quote(str(path))
    if name.endswith(".zip"):
        return _of_archive(path)
    if name.endswith(_SHEETS):
        return "is a spreadsheet, which is not read; save it as CSV first"
    if name.endswith(_BASES):
        return (
            "is a database, which is not read; write its table as CSV, as with: "
            f"sqlite3 -header -csv {quoted} 'SELECT * FROM ratings' > log.csv"
        )
    packed = max((ending for ending in _UNPACKED if name.endswith(ending)), key=len, default=None)
    if packed is not None:
        return f"is packed in a way that is not read; unpack it, as with: {_UNPACKED[packed]} {quoted}"
    return next((said for endings, said in _OTHERS.items() if name.endswith(endings)), None)


def begins_as(path: Path) -> str | None:
    """The ending of the binary files that begin as this one does, None for any other."""
    with path.open("rb") as file:
        head = file.read(max(map(len, _BEGINS)))
    return next((ending for start, ending in _BEGINS.items() if head.startswith(start)), None)


def in_other_words(path: Path) -> str:
    """The advice for a file with an unknown suffix, by its first bytes."""
    ending = begins_as(path)
    with path.open("rb") as file:
        head = file.read(_HEAD)
    text = head.decode("utf-8-sig", errors="replace")
    if ending is None and text.lstrip()[:1] in ("{", "["):
        ending = ".jsonl"
    if ending is not None:
        return f"it begins as {ending} files do, so call it {shlex.quote(path.name + ending)}"
    if b"\x00" in head:
        return "write it as Parquet or CSV"
    mark = separator_of([line for line in text.splitlines()[:-1] or [text] if line.strip()][:100], None, '"')
    word = {"\t": "tab", None: "';'"}.get(mark, f"'{mark}'")
    return f"if it is text, say what separates its columns, as --separator {word}; else write it as Parquet"


def as_utf8(path: str) -> str:
    """The command that converts a Latin-1 or Windows-1252 text file to UTF-8."""
    file = Path(path)
    if not file.is_file():
        return "save it as UTF-8, as with: iconv -f WINDOWS-1252 -t UTF-8 OLD > NEW"
    undefined = re.compile(rb"[\x81\x8d\x8f\x90\x9d]")
    with file.open("rb") as opened:
        latin = any(undefined.search(block) for block in iter(lambda: opened.read(1 << 20), b""))
    made = file.with_name(f"utf8.{file.name}")
    return (
        f"save it as UTF-8, as with: iconv -f {'LATIN1' if latin else 'WINDOWS-1252'} -t UTF-8 "
        f"{shlex.quote(path)} > {shlex.quote(str(made))}"
    )


def _of_archive(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            files = [each for each in archive.infolist() if not each.is_dir()]
    except (OSError, zipfile.BadZipFile):
        return "is not a whole archive; fetch it again"
    if not files:
        return "is an empty archive; fetch it again"
    largest = max(files, key=lambda each: each.file_size).filename
    names = ", ".join(each.filename for each in files[:_SHOWN]) + (", .." if len(files) > _SHOWN else "")
    return (
        f"is packed in a way that is not read, and holds {names}; unpack it, as with: unzip {shlex.quote(str(path))}, "
        f"and give the log in it, such as {shlex.quote(largest)}"
    )
