"""Logs of every format with changed bytes: they are read or give one error, and describe agrees."""

import gzip
import io

import polars as pl

from beamwood.data import Dataset, describe_log, read_log
from beamwood.errors import InputError
from fuzz.folders import mutated
from fuzz.values import drawn

__all__ = ["Mutated"]

ROWS = [
    (10**18 + user, f"i{(user * 7 + place) % 9}", 1_700_000_000 + user * 60 + place)
    for user in range(9)
    for place in range(5)
]
FRAME = pl.DataFrame(ROWS, schema=["user_id", "item_id", "timestamp"], orient="row")
TEXT = FRAME.with_columns(pl.from_epoch("timestamp").dt.to_string("%Y-%m-%d %H:%M:%S"))


def written(write, frame=FRAME):
    into = io.BytesIO()
    write(frame, into)
    return into.getvalue()


FORMATS = {
    "log.parquet": written(pl.DataFrame.write_parquet),
    "log.arrow": written(pl.DataFrame.write_ipc),
    "log.feather": written(pl.DataFrame.write_ipc_stream),
    "log.csv": TEXT.write_csv().encode(),
    "log.csv.gz": gzip.compress(TEXT.write_csv().encode(), mtime=0),
    "log.csv.zst": written(lambda frame, into: frame.write_csv(into, compression="zstd"), TEXT),
    "log.tsv": FRAME.write_csv(separator="\t").encode(),
    "log.jsonl": FRAME.write_ndjson().encode(),
    "log.inter": FRAME.rename(lambda name: f"{name}:token").write_csv(separator="\t").encode(),
}


class Mutated:
    """Writes one damaged log after another into a folder."""

    def __init__(self, folder):
        self.folder = folder

    def case(self, seed, number):
        """A description of the damage, and the reading, which may raise only an `InputError`."""
        chance = drawn("log", seed, number)
        name = chance.choice(sorted(FORMATS))
        path = self.folder / name
        path.write_bytes(mutated(chance, FORMATS[name]))
        return name, lambda: self.read(path, describes=chance.random() < 0.2)

    def read(self, path, *, describes):
        """Whether it was read."""
        refusal = self.refusal(lambda: Dataset.from_log(read_log(path)))
        if describes:
            again = self.refusal(lambda: describe_log(path))
            assert again == refusal, f"a fit says {refusal}, describe says {again}"
        return refusal is None

    def refusal(self, call):
        """The error of a call, None for none."""
        try:
            call()
        except InputError as error:
            return str(error)
        return None
