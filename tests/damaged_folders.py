"""Saved retrievers of every kind, and systematic damage of folders with valid checksums but invalid content.

As a program it tests the named kinds, so that a crash of the process can be seen from outside.
"""

import contextlib
import copy
import hashlib
import importlib.util
import io
import json
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import polars as pl
import safetensors.numpy
import torch
from scipy import sparse

from beamwood.artefact import read_artefact
from beamwood.data import Vocabulary
from beamwood.data.features import FeatureColumn
from beamwood.errors import ArtefactError, InputError
from beamwood.kernels.din import DinWeights, Layer
from beamwood.kernels.terms import TermArrays
from beamwood.models.din_ranker import DinRanker
from beamwood.models.encoders import ENCODERS
from beamwood.models.graphrec import GraphRec
from beamwood.models.pair_model import PairModel
from beamwood.models.scorers import din, neumf
from beamwood.models.sequence import SequenceModel
from beamwood.models.terms import TERMS
from beamwood.retrieval.columns.item_columns import ItemColumns
from beamwood.retrieval.index import INDEXES, HnswIndex, settings_of
from beamwood.retrieval.retriever import Retriever
from beamwood.retrieval.searchers.blend import Blend, Part
from beamwood.retrieval.searchers.neighbours import NeighbourSearcher
from beamwood.retrieval.searchers.popularity import PopularitySearcher
from beamwood.retrieval.searchers.queries import EncodedHistory, HistoryMean, Scaled, UserBranch, UserVectors
from beamwood.retrieval.searchers.ranked import RankingSearcher
from beamwood.retrieval.searchers.scorers import restore_scorer
from beamwood.retrieval.searchers.tree import TreeSearcher
from beamwood.retrieval.searchers.vectors import VectorSearcher, sequence_searcher
from beamwood.tree import random_tree
from beamwood.types import ItemLists

NUM_ITEMS, NUM_USERS, WIDTH = 20, 3, 4
COLUMNS = (FeatureColumn(name="device", kind="category", values=("tv",)),)


def columns(categories):
    return ItemColumns.of(pl.DataFrame({"category": categories}))


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def tree():
    def layer(inputs, outputs):
        return Layer(numbers(outputs, inputs), numbers(outputs), np.full(outputs, 0.3, np.float32))

    built = random_tree(NUM_ITEMS, np.random.default_rng(0))
    nodes = numbers(built.shape.num_nodes, WIDTH)
    mlp = layer(3 * WIDTH, 5), layer(5, 1)
    terms = {"similarity": {"vectors": numbers(built.shape.num_nodes, 3), "places": numbers(4)}}
    terms["seen"] = {"weights": numbers(4)}
    listed = np.arange(built.shape.num_nodes * 2, dtype=np.int32).reshape(-1, 2) % 4 - 1
    chances, shares, places = (np.abs(numbers(*size)) for size in (listed.shape, [len(listed)], [4]))
    near = {"leaves": listed, "chances": chances, "shares": shares, "places": places, "gain": numbers(1)}
    terms["neighbours"] = near
    held = {name: TermArrays(TERMS[name], arrays) for name, arrays in terms.items()}
    weights = DinWeights(nodes, layer(3 * WIDTH, 5), layer(5, 1), np.array([3, 1], np.int64), mlp, held)
    return TreeSearcher(weights, built, beam_width=4)


def neighbours():
    matrix = sparse.random(NUM_ITEMS, NUM_ITEMS, 0.3, random_state=np.random.RandomState(0), format="csr")
    return NeighbourSearcher(matrix, np.arange(NUM_ITEMS), decay=0.9, length=5)


def encoder(name, length=5, *, tied=True, **sizes):
    given = ENCODERS[name].sizes(**sizes)
    return SequenceModel(ENCODERS[name], NUM_ITEMS, width=WIDTH, length=length, sizes=given, tied=tied)


def sequence(model, branch=None):
    return sequence_searcher(model.plain(), branch)


def sasrec():
    branch = UserBranch(numbers(WIDTH, WIDTH), numbers(WIDTH), 2)
    return sequence(encoder("sasrec", num_blocks=1, tied=False), branch)


def two_tower(tower):
    if tower == "mf":
        queries = UserVectors(numbers(NUM_USERS, WIDTH))
    elif tower == "mean":
        queries = HistoryMean(numbers(NUM_ITEMS, WIDTH), length=5)
    else:
        queries = EncodedHistory(encoder(tower).plain())
    return VectorSearcher(Scaled(queries), numbers(NUM_ITEMS, WIDTH, seed=1))


def ranking(model, **settings):
    config, arrays = model.export()
    return RankingSearcher(restore_scorer(config | settings, {name: array.copy() for name, array in arrays.items()}))


def graphrec():
    return ranking(GraphRec(NUM_USERS, NUM_ITEMS, width=WIDTH, context_columns=COLUMNS))


def neumf_model():
    sizes = neumf.Sizes(factors=2, layers=(4,))
    return PairModel(neumf.SCORE, NUM_USERS, NUM_ITEMS, width=3, sizes=sizes)


def din_model():
    sizes = din.Sizes(attention=(5, 3), mlp=(6,))
    model = DinRanker(NUM_USERS, NUM_ITEMS, width=WIDTH, sizes=sizes, context_columns=COLUMNS)
    return ranking(model, history_length=5)


KINDS = {
    "tree": tree,
    "neighbours": neighbours,
    "popularity": lambda: PopularitySearcher(np.arange(NUM_ITEMS)),
    "sasrec": sasrec,
    "gru4rec": lambda: sequence(encoder("gru4rec", hidden=3)),
    "caser": lambda: sequence(encoder("caser", length=3, num_vertical=2, num_horizontal=3)),
    "fmlp": lambda: sequence(encoder("fmlp", num_blocks=1)),
    "tower-mf": lambda: two_tower("mf"),
    "tower-mean": lambda: two_tower("mean"),
    "tower-sasrec": lambda: two_tower("sasrec"),
    "tower-gru4rec": lambda: two_tower("gru4rec"),
    "graphrec": graphrec,
    "neumf": lambda: ranking(neumf_model()),
    "din": din_model,
    "blend": lambda: Blend([Part(sasrec(), gate="history")], seen_weight=0.5, fallback=KINDS["popularity"]()),
    "two_stage": lambda: Blend([Part(neighbours(), 0.0), Part(graphrec())], num_candidates=6),
    "two-stage-fitted": lambda: Blend([Part(tree(), 0.3), Part(two_tower("mf"))], seen_weight=-2.0, num_candidates=6),
}

if importlib.util.find_spec("faiss") is not None:
    KINDS["tower-hnsw"] = lambda: two_tower("mean").indexed(HnswIndex)

SMALL = {"num_buckets": 4, "num_codewords": 16, "num_codes": 2, "num_children": 2, "num_epochs": 1, "hidden": 5}
for _name, _kind in INDEXES.items():
    if _name not in ("exact", "hnsw"):
        KINDS[f"tower-{_name}"] = lambda kind=_kind: two_tower("mean").indexed(kind, settings_of(kind, SMALL))

# Wrong values for any entry of a manifest.
WRONG_VALUES = (None, "zzz", -1, 0, 1.5, True, 10**12, [], ["a"], {}, {"a": None})
# Content that is invalid in any array.
CERTAIN = ("gone", "an axis more", "empty", "nan", "infinite", "too large", "far below 0")


def array_damages(array):
    """Pairs of a description and the damaged array, None for a missing one."""
    yield "gone", None
    yield "an axis more", array[None]
    yield "empty", array[:0]
    yield "a row less", array[1:]
    yield "transposed", array.T.copy()
    yield "other numbers", array.astype(np.float64 if array.dtype.kind == "i" else np.int64)
    yield "wide numbers", array.astype(np.float64 if array.dtype.kind == "f" else np.uint64)
    yield "truth values", array > 0
    yield "zeros", np.zeros_like(array)
    if array.dtype.kind == "f":
        yield "nan", np.where(np.arange(array.size).reshape(array.shape) == 0, np.float32(np.nan), array)
        yield "infinite", np.full_like(array, np.inf)
        yield "huge", np.full_like(array, 3e38)
        yield "below 0", -np.abs(array)
    else:
        yield "too large", np.full_like(array, np.iinfo(array.dtype).max)
        if array.dtype.kind == "i":
            yield "far below 0", np.full_like(array, np.iinfo(array.dtype).min)
        yield (
            "one too large",
            np.where(np.arange(array.size).reshape(array.shape) == array.size // 2, 10**6, array).astype(array.dtype),
        )
        yield "reversed", array[::-1].copy()


def table_damages(frame):
    """Pairs of a description and the damaged table, None for a missing one."""
    ids = frame["id"]
    for name, column in {
        "repeated": ids.clone().gather([0] * len(ids)),
        "null": pl.Series([None] * len(ids), dtype=ids.dtype),
        "lists": pl.Series([[1]] * len(ids)),
        "nan": pl.Series([float("nan"), *map(float, range(len(ids) - 1))]),
        "truth values": pl.Series([True, False, *[None] * (len(ids) - 2)]),
    }.items():
        yield name, frame.with_columns(id=column)
    yield "gone", None
    yield "empty", frame.head(0)
    yield "a row less", frame.head(len(frame) - 1)
    yield "no ids", frame.rename({"id": "ids"})
    yield "categories that are lists", frame.with_columns(category=pl.Series([[1]] * len(frame)))


def value_damages(value, path=()):
    """Pairs of a path of keys and a wrong value or "gone", for every nested value."""
    if path:
        yield path, "gone"
        for wrong in WRONG_VALUES:
            if type(wrong) is not type(value) or wrong != value:
                yield path, wrong
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield from value_damages(part, (*path, key))


def changed(document, path, wrong):
    """A copy of the document with this value at this path."""
    document = copy.deepcopy(document)
    part = document
    for key in path[:-1]:
        part = part[key]
    if wrong == "gone":
        del part[path[-1]]
    else:
        part[path[-1]] = wrong
    return document


def put_manifest(folder, document):
    """Write a manifest with a valid checksum."""
    content = {name: value for name, value in document.items() if name != "checksum"}
    content["checksum"] = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(content))


class Folder:
    """A saved retriever of one kind, whose parts can be damaged one at a time."""

    def __init__(self, kind, path):
        self.path = Path(path)
        Retriever(
            searcher=KINDS[kind](),
            items=Vocabulary(pl.Series([f"i{n:02d}" for n in range(NUM_ITEMS)])),
            users=Vocabulary(pl.Series([10, 20, 30])),
            histories=ItemLists.from_lists([[1, 2, 3], [], [4] * 7]),
            columns=columns(["even" if n % 2 == 0 else "odd" for n in range(NUM_ITEMS)]),
            metadata={"method": kind},
        ).save(self.path)
        artefact = read_artefact(self.path)
        # Copies, because the originals are memory-mapped.
        self.arrays = {
            name: {key: array.copy() for key, array in artefact.arrays(name).items()}
            for name in artefact.names("arrays")
        }
        self.tables = {name: artefact.table(name) for name in artefact.names("table")}
        self.files = {file.name: file.read_bytes() for file in self.path.iterdir()}
        self.manifest = json.loads(self.files["manifest.json"])
        self.other = set()

    def put(self, document, **files):
        """The saved folder with other files (None: missing) and another manifest, with valid checksums."""
        document = copy.deepcopy(document)
        for name in self.other - set(files):
            (self.path / name).write_bytes(self.files[name])
        self.other = set(files)
        for name, content in files.items():
            if content is None:
                del document["files"][name]
                continue
            (self.path / name).write_bytes(content)
            document["files"][name] |= {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        put_manifest(self.path, document)

    def put_arrays(self, name, arrays):
        """The folder with other arrays in one file."""
        document = copy.deepcopy(self.manifest)
        shapes = {key: {"dtype": str(array.dtype), "shape": list(array.shape)} for key, array in arrays.items()}
        document["files"][f"{name}.safetensors"]["arrays"] = shapes
        self.put(document, **{f"{name}.safetensors": safetensors.numpy.save(arrays)})

    def put_table(self, name, frame):
        """The folder with another table, None for no table."""
        content = io.BytesIO()
        if frame is not None:
            frame.write_parquet(content)
        self.put(self.manifest, **{f"{name}.parquet": None if frame is None else content.getvalue()})

    def damages(self):
        """Damage the folder in every way, one at a time; yields the damage and whether it must be refused."""
        for file, arrays in self.arrays.items():
            for name, array in arrays.items():
                for what, damaged in array_damages(array):
                    others = {key: part for key, part in arrays.items() if key != name}
                    self.put_arrays(file, others if damaged is None else others | {name: damaged})
                    yield f"{file}: {name} {what}", what in CERTAIN
        for table, frame in self.tables.items():
            for what, damaged in table_damages(frame):
                self.put_table(table, damaged)
                yield f"{table} {what}", False
        for path, wrong in value_damages({"searcher_config": self.manifest["searcher_config"]}):
            self.put(changed(self.manifest, path, wrong))
            yield f"manifest {path} {wrong!r}", False

    def common_damages(self):
        """As `damages`, for parts common to all kinds: the manifest's own entries and the bytes of files."""
        for path, wrong in value_damages(self.manifest):
            if path[0] not in ("searcher_config", "libraries"):
                self.put(changed(self.manifest, path, wrong))
                yield f"manifest {path} {wrong!r}", path[-1] in ("size", "sha256", "kind", "arrays", "format")
        rng = np.random.default_rng(0)
        for name, content in self.files.items():
            for _ in range(0 if name == "manifest.json" else 60):
                broken = bytearray(content)
                place = int(rng.integers(len(broken)))
                broken[place] ^= 1 << int(rng.integers(8))
                self.put(self.manifest, **{name: bytes(broken)})
                yield f"{name} byte {place}", False


def ask(folder, *, verify=True):
    """Load, and recommend by user and by history if the kind can; answers must be well-formed, else it is an error."""
    retriever = Retriever.load(folder, verify=verify)
    known = set(retriever.items.ids.to_list())
    some = retriever.items.ids.to_list()[:3]
    rows = []
    users = retriever.users.ids.to_list() if retriever.users else []
    for asked in ({"users": users}, {"histories": [some, []], "allowed": {"category": "odd"}}):
        try:
            found = retriever.recommend(k=5, **asked)
        except InputError:
            continue
        rows += found.item_ids
        json.dumps(found.scores, allow_nan=False)
    assert all(len(row) == len(set(row)) <= 5 and set(row) <= known for row in rows)


def try_all(kind, path, *, common=False):
    """Damage a folder of the kind in every way and load it each time; `AssertionError` names the failed damage."""
    torch.manual_seed(0)
    folder = Folder(kind, Path(path) / "model")
    ask(folder.path)
    count = 0
    for what, certain in folder.common_damages() if common else folder.damages():
        count += 1
        try:
            ask(folder.path)
            refusal = None
        except ArtefactError as error:
            refusal = str(error)
        except Exception as error:
            raise AssertionError(f"{kind}: {what}: {type(error).__name__}: {error}") from error
        # Damage that loading does not check may raise any error, but must not crash the process.
        with contextlib.suppress(Exception):
            ask(folder.path, verify=False)
        assert refusal is not None or not certain, f"{kind}: {what} was not detected"
        assert refusal is None or str(folder.path) in refusal, (
            f"{kind}: {what}: the error does not name the folder: {refusal}"
        )
    assert count > 20


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for named in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as scratch:
            try_all(named, scratch)
