"""Methods as records: by name, from a custom file, or as an object; and the checks that follow from them."""

import json
import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import beamwood
from beamwood.cli.main import main
from beamwood.data import Dataset, disjoint_users, leave_one_out, read_log
from beamwood.errors import ArtefactError, InputError
from beamwood.fitting.method_config import MethodConfig
from beamwood.methods import METHODS, Method, Needs, counting, load_method, with_option
from beamwood.training.run_folder import RunFolder
from cli_cases import beamwood as command
from resumed import assert_same_arrays

COUNTING = '''
"""What was taken last is wanted again."""

import numpy as np
from scipy import sparse

from beamwood.fitting.counting import CountingConfig, GridSettings, best_of_grid, interactions
from beamwood.methods import Method


class Config(CountingConfig):
    """Three decays."""

    model: GridSettings = GridSettings(decay=(0.9, 0.5, 0.1))


def build(split, config, seed, budget):
    together = interactions(split.train.histories, split.train.num_items)

    def matrix():
        counts = sparse.lil_matrix(together.T @ together)
        counts.setdiag(0)
        return sparse.csr_matrix(counts)

    return best_of_grid(split, config, matrix, seed, budget)


METHOD = Method(name="together", summary="how many took both", Config=Config, build=build)
'''
OWN = '''
"""A searcher that only this file defines: items by their own number, the highest first."""

from dataclasses import dataclass

import numpy as np

from beamwood.fitting.method_config import MethodConfig
from beamwood.methods import Method
from beamwood.retrieval.searchers.popularity import PopularitySearcher


class Config(MethodConfig):
    """Nothing to choose."""


class Backwards(PopularitySearcher):
    kind = "backwards"


def build(split, config, seed, budget):
    return Backwards(np.arange(split.train.num_items))


METHOD = Method(
    name="backwards", summary="the last first", Config=Config, build=build, searchers={"backwards": Backwards}
)
'''
TRAINED = '''
"""A recurrent encoder in a smaller size."""

from beamwood.fitting.settings import LoopSettings
from beamwood.fitting.vectors.settings import SequenceConfig, SequenceModelSettings
from beamwood.methods import Method, Needs
from beamwood.methods.sequence import fit
from beamwood.models.encoders import gru4rec


class ModelSettings(gru4rec.Sizes, SequenceModelSettings):
    """A recurrent encoder."""


class Config(SequenceConfig):
    """Small."""

    model: ModelSettings = ModelSettings(width=4, length=5, hidden=6)
    loop: LoopSettings = LoopSettings(max_steps=4, evaluate_every=2, batch_size=8)

    @property
    def encoder(self):
        return gru4rec.ENCODER


METHOD = Method(name="small_gru", summary="a small GRU", Config=Config, fit=fit, needs=Needs(steps=True))
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder, rows = tmp_path_factory.mktemp("own"), np.arange(240)
    frame = pl.DataFrame({"user_id": rows % 20, "item_id": (rows * rows // 20) % 12, "timestamp": rows})
    frame.write_parquet(folder / "log.parquet")
    for name, text in (("together", COUNTING), ("backwards", OWN), ("small_gru", TRAINED)):
        (folder / f"{name}.py").write_text(text)
    return folder


@pytest.fixture(scope="module")
def split(folder):
    return disjoint_users(Dataset.from_log(read_log(folder / "log.parquet")), seed=1)


def test_a_counting_file_is_fitted_saved_and_summed(folder, split, tmp_path):
    path = str(folder / "together.py")
    fitted = beamwood.fit(split, path, {"model.decay": [0.5, 0.9]})
    assert fitted.metadata["method"] == "together"
    assert fitted.metadata["training"]["decay"] in (0.5, 0.9)
    about = fitted.metadata["method_file"]
    assert about["path"] == path
    assert re.fullmatch("[0-9a-f]{64}", about["sha256"])
    fitted.save(tmp_path / "fitted")
    # Its searcher belongs to the package, so the file is not needed.
    assert beamwood.load(tmp_path / "fitted").recommend([[1, 2]], k=5) == fitted.recommend([[1, 2]], k=5)
    both = beamwood.fit(split, f"popularity+{path}")
    assert both.metadata["training"].keys() >= {"together/retriever_weight"}
    assert beamwood.fit(split, load_method(path), {"model.decay": 0.9}).metadata["training"]["decay"] == 0.9
    with pytest.raises(InputError, match=r"'model.deca' is unknown; did you mean 'model\.decay'"):
        beamwood.fit(split, path, {"model.deca": 1})


def test_a_file_on_the_command_line(folder, tmp_path, capsys, monkeypatch):
    path, log = folder / "together.py", folder / "log.parquet"
    assert command("settings", path, "--json") == 0
    assert json.loads(capsys.readouterr().out)["model.decay"]["default"] == [0.9, 0.5, 0.1]
    fitted, whole = [], Method.fitted
    monkeypatch.setattr(Method, "fitted", lambda self, *a, **o: (fitted.append(self.name), whole(self, *a, **o))[1])
    assert command("compare", log, "--methods", f"popularity,{path},popularity+{path}", "--k", "5", "--json") == 0
    captured = capsys.readouterr()
    assert list(json.loads(captured.out)["methods"]) == ["popularity", "together", "popularity+together"]
    assert sorted(fitted) == ["popularity", "together"]
    out = tmp_path / "gru"
    assert command("fit", log, "--method", folder / "small_gru.py", "--out", out, "--set", "loop.max_steps=3") == 0
    more = ("--resume", "--overwrite", "--set", "loop.max_steps=6")
    assert command("fit", log, "--method", folder / "small_gru.py", "--out", out, *more) == 0, capsys.readouterr().err
    assert beamwood.load(out).metadata["training"]["steps"] == 6
    assert command("evaluate", out, "--k", "5") == 0
    assert command("recommend", out, "--history", "1,2", "-k", "3") == 0
    assert command("fit", log, "--method", f"ease+{folder / 'small_gru.py'}", "--out", tmp_path / "x") == 2
    assert "small_gru is trained, and a sum adds counting methods only" in capsys.readouterr().err


def test_a_trained_file_resumes(folder, split, tmp_path):
    method, config = load_method(folder / "small_gru.py"), {"optimiser.decay_steps": 9}
    whole = method.fitted(split, config, progress=False, run=RunFolder(tmp_path / "whole"))
    method.fitted(split, config | {"loop.max_steps": 2}, progress=False, run=RunFolder(tmp_path / "parts"))
    again = method.fitted(split, config, progress=False, run=RunFolder(tmp_path / "parts"), resume=True)
    assert_same_arrays(whole, again)
    assert whole.metadata["method"] == again.metadata["method"] == "small_gru"


def test_a_custom_searcher_is_never_run_without_permission(folder, split, tmp_path):
    path = folder / "backwards.py"
    method = load_method(path)
    fitted = beamwood.fit(split, path)
    fitted.save(tmp_path / "alone")
    with pytest.raises(
        ArtefactError, match=r"searcher kind 'backwards' is unknown.* of the method file .*backwards\.py"
    ):
        beamwood.load(tmp_path / "alone")
    expected = fitted.recommend([[1, 2]], k=5)
    assert beamwood.load(tmp_path / "alone", path).recommend([[1, 2]], k=5) == expected
    assert beamwood.load(tmp_path / "alone", method=method).recommend([[1, 2]], k=5) == expected
    start = {"start.retriever": str(tmp_path / "alone"), "start.ranker": "ease"}
    with pytest.raises(
        InputError, match="alone holds backwards, whose searcher only its own file defines, so no other"
    ):
        beamwood.fit(split, "two_stage", start)
    both = beamwood.fit(split, f"{path}+popularity")
    both.save(tmp_path / "both")
    with pytest.raises(ArtefactError, match=r"which is not run automatically: if you trust it, pass method="):
        beamwood.load(tmp_path / "both")
    assert beamwood.load(tmp_path / "both", path).recommend([[1]], k=5) == both.recommend([[1]], k=5)
    other = tmp_path / "backwards.py"
    other.write_text(OWN + "\n# changed\n")
    with pytest.raises(InputError, match=r"fitted with the method file .*give the original file, or its METHOD"):
        beamwood.load(tmp_path / "alone", other)
    assert (
        beamwood.load(tmp_path / "alone", replace(load_method(other), file=None)).recommend([[1, 2]], k=5) == expected
    )
    nameless = Method(name="mine", summary="s", Config=MethodConfig, build=method.build)
    beamwood.fit(split, nameless).save(tmp_path / "nameless")
    with pytest.raises(ArtefactError, match=r"'backwards' is unknown.*or load\(path, method=\.\.\.\) its own Method"):
        beamwood.load(tmp_path / "nameless")


def test_the_command_line_says_how_to_open_a_custom_searcher(folder, split, tmp_path, capsys):
    path = folder / "backwards.py"
    beamwood.fit(split, path).save(tmp_path / "alone")
    assert command("recommend", tmp_path / "alone", "--history", "1") == 2
    said = capsys.readouterr().err.strip()
    assert said.endswith(f"if you trust it, pass --method '{path}'")
    assert command("recommend", tmp_path / "alone", "--history", "1", "--method", path) == 0


def test_a_file_named_without_its_suffix_is_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(COUNTING)
    with pytest.raises(
        InputError, match=r"method 'mine' is unknown; for the method of your file give its path, mine\.py"
    ):
        load_method("mine")
    with pytest.raises(InputError, match="did you mean 'tdm'"):
        load_method("tdn")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("METHOD = 3", "defines no METHOD; write METHOD = Method"),
        ("raise SystemExit(0)", r"wrong\.py, line 1: SystemExit: 0; mend the file"),
        ("raise RuntimeError('no')", r"wrong\.py, line 1: RuntimeError: no; mend the file"),
        ("METHOD = ", r"wrong\.py: SyntaxError: .*line 1\); mend the file"),
        (COUNTING.replace('name="together"', 'name="dtr"'), "has the name 'dtr', which is beamwood's own"),
        (COUNTING.replace('name="together"', 'name="a+b"'), r"name='a\+b' is not a method name"),
        (COUNTING.replace(", build=build", ""), "the method together needs either fit or build"),
        (TRAINED.replace("Needs(steps=True)", "Needs(users={'model.sort': ()})"), "'model.sort', which is none of its"),
    ],
)
def test_wrong_files(tmp_path, split, text, message):
    path = tmp_path / "wrong.py"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        beamwood.fit(split, path)
    with pytest.raises(InputError, match=r"nowhere\.py does not exist; did you mean"):
        beamwood.fit(split, tmp_path / "nowhere.py")


def test_needs_are_checked_before_anything_is_fitted(split, folder):
    def never(split, config, seed):
        raise AssertionError("it was fitted")

    who = Method(name="who", summary="knows users", Config=MethodConfig, build=never, needs=Needs(users=True))
    with pytest.raises(InputError, match=r"who recommends to users of the training data only, .* or another method"):
        beamwood.fit(split, who)
    when = replace(who, name="when", needs=Needs(time=True))
    untimed = Dataset.from_log(read_log(pl.read_parquet(folder / "log.parquet").drop("timestamp")))
    with pytest.raises(InputError, match=r"when needs times; give a log with them \(--time-column\)"):
        beamwood.fit(leave_one_out(untimed), when)
    with pytest.raises(InputError, match=r"option 'sed' is unknown; did you mean 'seed'"):
        beamwood.fit(split, "popularity", sed=3)


def test_consequences_of_needs():
    assert set(counting()) == {"popularity", "cooccurrence", "transitions", "ease"}
    assert with_option("--from") == ["tiger", "jtr", "lpo4rec", "melt", "cities", "indexed"]
    assert {name for name in METHODS if not load_method(name).needs.alone} == {"melt", "cities", "two_stage", "indexed"}
    for name in METHODS:
        method = load_method(name)
        assert method.name == name
        assert method.Config().given == frozenset()
        assert method.Config().flat() == method.Config(**method.Config().flat()).flat() or name == "two_stage"


@pytest.mark.parametrize("name", ["two_stage", "melt", "cities", "indexed"])
def test_a_missing_start_is_told_before_the_log_is_read(name, tmp_path, capsys):
    arguments = ["fit", str(tmp_path / "no_log.csv"), "--method", name, "--out", str(tmp_path / "out")]
    option = "--retriever" if name == "two_stage" else "--from"
    assert main(arguments) == 2
    assert f"{name} needs a fitted model; give its folder with {option}" in capsys.readouterr().err
    assert main([*arguments, option, str(tmp_path / "none")]) == 2
    assert "none does not exist" in capsys.readouterr().err
