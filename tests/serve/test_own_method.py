"""A model whose searcher a method file defines: the service takes that file alone, and runs no other."""

import shutil
from pathlib import Path

import pytest

import beamwood
from beamwood.data.markets.synthetic import MarketConfig, make_market
from beamwood.methods.reload import searchers_by_folder
from served import items_of, post, recommend, serving

FILE = Path(__file__).parents[1] / "one_file" / "took_lately.py"
ASKED = {"history": [1, 2, 3], "k": 3, "exclude_seen": False}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """The folders `one` and `other`, each of a file of its own, and `plain` of none."""
    root = tmp_path_factory.mktemp("own")
    market = make_market(MarketConfig(num_users=60, num_items=30, min_events=6, max_events=12), seed=3)
    split = beamwood.splits.disjoint_users(beamwood.Dataset.from_log(beamwood.read_log(market.log)))
    shutil.copy(FILE, root / "one.py")
    # It takes the earliest first, and says when it runs.
    text = FILE.read_text().replace("np.float32(-np.inf), own_BM", "np.float32(-np.inf), own_BM + 1")
    text = text.replace("places.astype", "-places.astype")
    (root / "other.py").write_text(f"{text}\nfrom pathlib import Path\nPath(__file__ + '.ran').touch()\n")
    for name, method in (("one", root / "one.py"), ("other", root / "other.py"), ("plain", "popularity")):
        beamwood.fit(split, method).save(root / name)
    (root / "other.py.ran").unlink()
    return root


def test_a_model_of_another_file_is_refused(root):
    """Else it answered by the classes of the first one."""
    with serving(root / "one", searchers=searchers_by_folder(root / "one.py", root / "one"), models_dir=root) as client:
        assert items_of(recommend(client, ASKED)) == [3, 2, 1]
        for path, body in (
            ("/v1/models/load", {"path": "other"}),
            ("/v1/experiments", {"name": "e", "arms": [{"model": "other", "share": 1}]}),
        ):
            answer = client.request("PUT" if "experiments" in path else "POST", path, json=body)
            assert answer.status_code == 422
            assert "was fitted with the method file" in answer.json()["error"]["message"]
        assert items_of(recommend(client, ASKED)) == [3, 2, 1]
        post(client, "/v1/models/load", {"path": "plain"})
        assert recommend(client, ASKED)["source"] == "popular"
        post(client, "/v1/models/rollback", {})
        assert items_of(recommend(client, ASKED)) == [3, 2, 1]
    assert not (root / "other.py.ran").exists()


def test_a_file_that_changes_is_not_run(root, tmp_path):
    file = tmp_path / "one.py"
    shutil.copy(root / "one.py", file)
    with serving(root / "one", searchers=searchers_by_folder(file, root / "one"), models_dir=root) as client:
        shutil.copy(root / "other.py", file)
        post(client, "/v1/models/load", {"path": "other"}, 422)
        post(client, "/v1/models/load", {"path": "one"})
    assert not (tmp_path / "one.py.ran").exists()


def test_no_file_is_run_without_the_operator(root):
    with serving(root / "plain", models_dir=root) as client:
        said = post(client, "/v1/models/load", {"path": "other"}, 422)["error"]["message"]
        assert said.endswith(f"if you trust it, pass method='{root / 'other.py'}'")
    assert not (root / "other.py.ran").exists()
