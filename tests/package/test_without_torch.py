"""A plain `pip install beamwood`: counting methods and saved models work, and errors name the extra for the rest."""

import json
import re
import sys

import pytest

import beamwood
from beamwood.errors import NotInstalledError
from beamwood.extras import install_command
from beamwood.retrieval.request import Recommendations

COMMAND = install_command("train")
ANSWERS = """
import json, sys
import beamwood
recommended = beamwood.load(sys.argv[1]).recommend([[3, 5], [7], []], k=8)
assert "torch" not in sys.modules
print(json.dumps([recommended.item_ids, recommended.scores]))
"""
ERRORS = """
import sys
import beamwood, beamwood.testing, beamwood.training.run_folder
from beamwood.errors import NotInstalledError
split = beamwood.splits.disjoint_users(beamwood.Dataset.from_log(beamwood.read_log(sys.argv[1])))
asked = [lambda: beamwood.fit(split, "dtr"), lambda: beamwood.compare(split, ["popularity", "dtr"])]
asked += [lambda: beamwood.testing.EncoderContract, lambda: beamwood.testing.LevelLossContract]
asked += [lambda: beamwood.testing.TermContract, lambda: beamwood.fit(split, "ranker", {"model.kind": "din"})]
for call in asked:
    try:
        call()
        print("no error")
    except NotInstalledError as error:
        assert isinstance(error, ImportError)
        print(error)
"""
CONTRACT = """
from beamwood.methods import load_method
from beamwood.testing import MethodContract


class TestTransitions(MethodContract):
    method = load_method("transitions")
"""


def log_of(market):
    return [market / "log.parquet", "--items", market / "items.parquet"]


def test_counting_needs_no_torch(bare, market, tmp_path):
    log, out = log_of(market), tmp_path / "transitions"
    stages = ["--method", "two_stage", "--retriever", out, "--ranker"]
    done = bare.beamwood(
        ["fit", *log, "--method", "transitions", "--out", out],
        ["fit", *log, "--method", "popularity+cooccurrence", "--out", tmp_path / "sum"],
        ["fit", *log, "--method", "cooccurrence", "--out", tmp_path / "other"],
        ["fit", *log, *stages, tmp_path / "other", "--out", tmp_path / "folders"],
        ["fit", *log, *stages, "ease", "--out", tmp_path / "named"],
        ["evaluate", out, "--k", "5"],
        ["inspect", out],
        ["recommend", out, "--user", "3", "-k", "4", "--json"],
        ["recommend", out, "--all-users", "--out", tmp_path / "all.parquet"],
        ["compare", *log, "--methods", "popularity,transitions,ease", "--json"],
        ["refit", tmp_path / "sum"],
    )
    assert [code for code, _, _ in done] == [0] * 11, done
    assert "f@5" in done[5][1]
    assert "transitions" in done[6][1]
    assert len(json.loads(done[7][1])[0]["items"]) == 4
    assert list(json.loads(done[9][1])["methods"]) == ["popularity", "transitions", "ease"]


def test_frames_and_tables_name_their_extra(monkeypatch):
    pandas = pytest.importorskip("pandas")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for call in (
        lambda: beamwood.read_log(pandas.DataFrame({"user": [1], "item": [2]})),
        lambda: Recommendations([[1]], [[0.5]]).to("arrow"),
        lambda: Recommendations([[1]], [[0.5]]).to("pandas"),
    ):
        with pytest.raises(NotInstalledError, match=re.escape(install_command("frames"))):
            call()


def test_the_rest_of_the_command_line_needs_no_torch(bare):
    done = bare.beamwood(["settings", "dtr"], ["settings"], ["--help"], ["fit", "--help"], ["doctor"])
    assert [code for code, _, _ in done] == [0] * 5, done
    for (_, said, _), word in zip(
        done, ["loop.max_steps", "two_tower", "recommend", "--method", "kernels"], strict=True
    ):
        assert word in said


def test_the_doctor_names_what_is_missing(bare):
    (_, document, _), (_, said, _) = bare.beamwood(["doctor", "--json"], ["doctor"])
    extras = json.loads(document)["extras"]
    assert not extras["train"]["installed"]
    assert extras["train"]["versions"] == {"torch": None}
    assert extras["train"]["install"] == COMMAND
    assert extras["testing"]["installed"]
    assert COMMAND in said
    assert install_command("ann") in said
    assert install_command("testing") not in said


@pytest.mark.parametrize("name", ["dtr", "two_tower", "sasrec"])
def test_models_trained_elsewhere_give_equal_answers(bare, trained, answers, name):
    asked = ["recommend", trained[name], "--history", "3,5", "--history", "7", "-k", "8", "--json"]
    narrowed = [*asked, "--category", "group 0, category 1", "--include-seen"]
    measured = ["evaluate", trained[name], "--k", "5"]
    done = bare.beamwood(asked, narrowed, measured, ["inspect", trained[name], "--users", "10"])
    assert [code for code, _, _ in done] == [0] * 4, done
    assert json.loads(done[0][1]) == answers(*asked)
    assert json.loads(done[1][1]) == answers(*narrowed)
    assert "f@5" in done[2][1]
    assert name in done[3][1]
    here = beamwood.load(trained[name]).recommend([[3, 5], [7], []], k=8)
    assert json.loads(bare.run("-c", ANSWERS, trained[name])) == [here.item_ids, here.scores]


def test_training_commands_name_the_extra(bare, market, trained, tmp_path):
    (tmp_path / "mine.py").write_text("import torch\n")
    log = [*log_of(market), "--out", tmp_path / "out", "--method"]
    done = bare.beamwood(
        *(["fit", *log, method] for method in ("dtr", "two_tower", "dtr+ease", "ranker")),
        ["fit", *log, "two_stage", "--retriever", trained["dtr"]],
        ["fit", *log, tmp_path / "mine.py"],
        ["demo", "--out", tmp_path / "demo"],
        ["compare", market / "log.parquet"],
    )
    for code, out, said in done:
        assert code == 2
        assert said.count("\n") == 1
        assert COMMAND in said
        assert not out
    assert "method=dtr: torch is not installed" in done[0][2]
    assert "or choose a counting method: cooccurrence, transitions" in done[0][2]
    assert f"mine.py: torch is not installed; install it with: {COMMAND}" in done[5][2]
    assert done[7][2].endswith("--methods popularity,cooccurrence,transitions,ease\n")
    assert {path.name for path in tmp_path.iterdir()} <= {"mine.py", "__pycache__"}


def test_python_names_the_extra(bare, market):
    said = bare.run("-c", ERRORS, market / "log.parquet").splitlines()
    assert len(said) == 6
    assert all(COMMAND in line for line in said)


def test_a_counting_method_passes_its_contract_without_torch(bare, tmp_path):
    (tmp_path / "test_mine.py").write_text(CONTRACT)
    said = bare.run("-m", "pytest", "--import-mode=importlib", tmp_path / "test_mine.py")
    assert "10 passed, 1 skipped" in said


def test_importing_the_package_is_light_and_silent(bare):
    program = "import sys, beamwood; assert not {'torch', 'numpy', 'polars'} & set(sys.modules)"
    assert bare.run("-W", "error", "-c", program) == ""
