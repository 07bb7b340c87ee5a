"""The commands similar, score and export equal the Python API."""

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import beamwood as package
from beamwood.kernels.light import light_query
from beamwood.kernels.steering import light_scores
from beamwood.retrieval.searchers.popularity import PopularitySearcher
from cli_cases import beamwood
from retrieval_cases import retriever_of, tree_searcher, vector_searcher


@pytest.fixture
def folder(tmp_path):
    retriever_of(vector_searcher(60), text=False).save(tmp_path / "vectors")
    return tmp_path / "vectors"


@pytest.mark.parametrize("by", ["model", "vectors"])
def test_similar(folder, by, capsys):
    retriever = package.load(folder)
    (item,) = retriever.items.decode(np.array([7]))
    ask = ("similar", folder, "--item", item, "--by", by, "-k", 4, "--where", "price <= 30", "--json")
    assert beamwood(*ask) == 0
    expected = retriever.similar([item], 4, by=by, where={"price": {"lte": 30}})
    assert json.loads(capsys.readouterr().out) == {"items": expected.item_ids[0], "scores": expected.scores[0]}


def test_score_orders_a_list(folder, tmp_path, capsys):
    retriever = package.load(folder)
    items = retriever.items.decode(np.array([9, 4, 30, 4]))
    (tmp_path / "items.txt").write_text("\n".join(map(str, items)))
    assert beamwood("score", folder, "--user", 7, "--items", tmp_path / "items.txt", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    (scores,) = retriever.score(None, [found["items"]], users=[7])
    assert sorted(found["items"]) == sorted(set(items))
    assert found["scores"] == sorted(scores.tolist(), reverse=True)


def test_equal_scores_are_in_the_order_of_the_catalogue(tmp_path, capsys):
    retriever = retriever_of(PopularitySearcher(np.arange(60) // 30), text=False)
    retriever.save(tmp_path / "popular")
    listed = np.random.default_rng(0).permutation(60)
    (tmp_path / "items.txt").write_text("\n".join(map(str, retriever.items.decode(listed))))
    assert beamwood("score", tmp_path / "popular", "--user", 7, "--items", tmp_path / "items.txt", "--json") == 0
    expected = retriever.items.decode(np.r_[30:60, :30])
    assert json.loads(capsys.readouterr().out)["items"] == expected


def test_export_writes_vectors(folder, tmp_path):
    out = tmp_path / "out.parquet"
    assert beamwood("export", folder, "--vectors", out) == 0
    frame, retriever = pl.read_parquet(out), package.load(folder)
    assert frame["item"].to_list() == retriever.items.ids.to_list()
    assert np.array_equal(frame["vector"].to_numpy(), retriever.searcher.vectors)


def test_export_replaces_its_own_file_alone(folder, tmp_path, capsys):
    """A table of vectors from elsewhere has the same columns."""
    out = tmp_path / "vectors.parquet"
    pl.DataFrame({"item": [1], "vector": [[0.5]]}).write_parquet(out)
    capsys.readouterr()
    assert beamwood("export", folder, "--vectors", out, "--overwrite") == 2
    assert "is no earlier output of this command, so it is not replaced" in capsys.readouterr().err
    out.unlink()
    for _ in range(2):
        assert beamwood("export", folder, "--vectors", out, "--overwrite") == 0


def test_export_counts_what_it_writes(tmp_path, capsys):
    retriever = replace(retriever_of(vector_searcher(60), text=False), erased=np.array([7, 9], np.int32))
    retriever.save(tmp_path / "erased")
    assert beamwood("export", tmp_path / "erased", "--vectors", tmp_path / "out.parquet") == 0
    assert len(pl.read_parquet(tmp_path / "out.parquet")) == 58
    assert "58 vectors of width" in capsys.readouterr().err


def test_export_writes_the_light_head_of_a_tree(tmp_path, capsys):
    retriever = retriever_of(tree_searcher(90, steered=True))
    retriever.save(tmp_path / "tree")
    assert beamwood("export", tmp_path / "tree", "--vectors", tmp_path / "out.parquet") == 0
    assert "90 vectors of width 8, the light head's vectors of leaves" in capsys.readouterr().err
    frame, searcher = pl.read_parquet(tmp_path / "out.parquet"), retriever.searcher
    assert frame["item"].to_list() == retriever.items.ids.to_list()
    shape, weights = searcher.tree.shape, searcher.weights
    history, items = searcher.tree.leaf_of_item[[3, 8, 20, 41]], np.arange(90)
    rows, places = shape.level_offset(shape.depth) + history, np.arange(weights.history_length)
    light, vectors = weights.light, frame["vector"].to_numpy()
    sums = (light.places[places] * light.history_scales[rows]) @ light.history[rows].astype(np.float32)
    products = vectors @ light_query(light.arrays(), sums) + frame["bias"].to_numpy()
    # The head rounds queries to a thousandth of their largest entry.
    expected = light_scores(weights, shape, shape.depth, history, searcher.tree.leaf_of_item[items])
    assert np.allclose(products, expected, atol=0.01 * np.abs(expected).max())


def test_errors_name_the_fix(folder, fitted, tmp_path, capsys):
    (tmp_path / "empty.txt").write_text("\n")
    retriever_of(tree_searcher(90)).save(tmp_path / "bare")
    for arguments, message in (
        (
            ("export", tmp_path / "bare", "--vectors", tmp_path / "x.parquet"),
            "has no light head, as `beamwood inspect`",
        ),
        (("similar", folder, "--item", "0", "--by", "vector"), "did you mean 'vectors'"),
        (("similar", fitted, "--item", "1", "--by", "tree"), "has no tree"),
        (("similar", fitted, "--item", "1", "--by", "vectors"), "has no item vectors"),
        (("score", folder, "--items", tmp_path / "empty.txt"), "either --user or --history"),
        (("score", folder, "--user", "1", "--items", tmp_path / "empty.txt"), "holds no ids"),
        (("export", folder, "--vectors", tmp_path / "x.csv"), "must end in .parquet"),
        (("export", fitted, "--vectors", tmp_path / "x.parquet"), "no vectors of items to export"),
    ):
        assert beamwood(*arguments) == 2
        assert message in capsys.readouterr().err
