"""Every refusal of a field names it, and says what to give; names are never blank."""

import pytest

from beamwood.cli.main import main
from beamwood.retrieval.searchers.popularity import PopularitySearcher
from retrieval_cases import retriever_of
from served import post, recommend, saved, serving

LONG = "x" * 600
# An item of the model.
KNOWN = 262


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("fields") / "model")[0]


@pytest.fixture(scope="module")
def client(folder):
    with serving(folder, models_dir=folder.parent) as client:
        yield client


def refused(client, method, path, body, status=422):
    answer = client.request(method, path, json=body)
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert len(error["message"]) > 20
    return error


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"filter": {"where": {"brand": "nobody"}}}, "filter.where"),
        ({"filter": {"where": {"category": "c9"}}}, "filter.where"),
        ({"filter": {"category": ["c1"], "where": {"category": ["c9"]}}}, "filter.where"),
        ({"filter": {"where": {"not": {"any": [{"stock": True}, {"brand": ["nobody"]}]}}}}, "filter.where"),
        ({"filter": {"all_of": ["c9"]}}, "filter.all_of"),
        ({"filter": {"none_of": ["c9"]}}, "filter.none_of"),
        ({"filter": {"where": {}}}, "filter.where"),
        ({"filter": {"where": {"price": {"lt": 10**400}}}}, "filter.where"),
        ({"promote": [{"filter": {"where": {"brand": "nobody"}}, "share": 0.1}]}, "promote[0].filter.where"),
        ({"promote": [{"filter": {"category": ["c9"]}, "share": 0.1}]}, "promote[0].filter.category"),
        ({"promote": [{"filter": {"items": [1]}, "share": 0.1}]}, "promote[0].filter"),
        ({"promote": [{"filter": {"category": ["c1"]}, "share": 0.1, "name": " "}]}, "promote[0].name"),
        ({"promote": [{"filter": {"category": ["c1"]}, "share": 0.1, "name": LONG}]}, "promote[0].name"),
        ({"promote": [{"filter": {"category": ["c1"]}, "share": 0.9}] * 2}, "promote"),
        ({"max_per_category": {"c1": "x"}}, "max_per_category"),
        ({"max_per_category": {"c9": 1}}, "max_per_category"),
        ({"max_per_category": -1}, "max_per_category"),
        ({"context": {"device": "tv"}}, "context"),
        ({"exclude_rejected": True}, "exclude_rejected"),
    ],
)
def test_refusals_of_recommend(client, body, field):
    assert refused(client, "POST", "/v1/recommend", {"history": []} | body)["field"] == field


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "field"),
    [
        ("POST", "/v1/similar", {"item": -9}, 404, "item"),
        ("POST", "/v1/similar", {"items": [-9]}, 404, "items"),
        ("POST", "/v1/similar", {"item": KNOWN, "filter": {"where": {"brand": "nobody"}}}, 422, "filter.where"),
        ("PATCH", "/v1/items/-9", {"available": False}, 404, "id"),
        ("DELETE", "/v1/items/-9", None, 404, "id"),
        ("PUT", "/v1/items/availability", {"set": [-9]}, 404, "set"),
        ("PUT", "/v1/items/availability", {"clear": [-9]}, 404, "clear"),
        ("PUT", "/v1/items", {"items": [{"item": -1}, {"item": -2, "category": LONG}]}, 422, "items[1].category"),
        ("PUT", "/v1/items", {"items": [{"item": -1, "category": "a\0b"}]}, 422, "items[0].category"),
        ("PUT", "/v1/items", {"items": [{"item": -1, "category": "a|" * 101}]}, 422, "items[0].category"),
        ("PUT", "/v1/items", {"items": [{"item": -1, "fields": {"category": [LONG]}}]}, 422, "items[0].fields"),
        ("PUT", "/v1/items", {"items": [{"item": -1}, {"item": -2, "fields": {"price": "x"}}]}, 422, "items[1].fields"),
        ("PUT", "/v1/items", {"items": [{"item": -1, "similar": [1] * 1001}]}, 422, "items[0].similar"),
        ("POST", "/v1/events", {"events": [{"user": 1, "item": 1, "type": " "}]}, 422, "events[0].type"),
        ("POST", "/v1/users/merge", {"session": "", "user": 1}, 422, "session"),
        ("GET", "/v1/users/1/history?limit=x", None, 422, "limit"),
        ("DELETE", "/v1/users/1?session=1&session=0", None, 422, "session"),
        ("POST", "/v1/models/load", {"path": "../.."}, 403, "path"),
        ("PUT", "/v1/experiments", {"name": " ", "arms": [{"model": "current", "share": 1}]}, 422, "name"),
        ("PUT", "/v1/experiments", {"name": "e", "arms": [{"model": "", "share": 1}]}, 422, "arms[0].model"),
        ("PUT", "/v1/experiments", {"name": "e", "arms": [{"model": "..", "share": 1}]}, 403, "arms"),
        (
            "PUT",
            "/v1/experiments",
            {"name": "e", "arms": [{"model": "current", "share": 1, "name": ""}]},
            422,
            "arms[0].name",
        ),
    ],
)
def test_refusals_of_other_endpoints(client, method, path, body, status, field):
    assert refused(client, method, path, body, status)["field"] == field
    assert client.get("/v1/items").json()["items"] == []


def test_a_condition_of_the_page_that_is_nested_deep_is_refused(client):
    page = client.get("/", params={"user": "11", "where": "not " * 3000 + "stock=true"})
    assert (page.status_code, "nested more than 50 deep" in page.text) == (422, True)


def test_a_blank_name_says_so(client):
    arms = [{"model": "current", "share": 1, "name": "\t"}]
    error = refused(client, "PUT", "/v1/experiments", {"name": "e", "arms": arms})
    assert error["message"] == "arms[0].name is blank; give it a letter at least"


def test_categories_are_as_long_as_ids(client):
    longest = "|".join([*(f"c{number}" for number in range(99)), "y" * 512])
    put = client.put("/v1/items", json={"items": [{"item": -1, "category": longest}]})
    assert put.status_code == 200, put.text
    error = refused(client, "PATCH", "/v1/items/-1", {"category": f"a|{LONG}"})
    assert (error["field"], "600 characters; give 1 to 512" in error["message"]) == ("category", True)
    assert client.delete("/v1/items/-1").status_code == 200


def test_refusals_of_models_that_lack_what_is_asked(tmp_path):
    plain = retriever_of(PopularitySearcher([1.0] * 40), text=False)
    plain.save(tmp_path / "popular")
    item = plain.items.decode([3])[0]
    with serving(tmp_path / "popular") as client:
        assert client.service.models.current.tree is None
        for by in ("model", "vectors", "tree"):
            assert post(client, "/v1/similar", {"item": item, "by": by}, 422)["error"]["field"] == "by"
        assert recommend(client, {"history": [], "diversity": 0.5}, 422)["error"]["field"] == "diversity"
        assert recommend(client, {"history": [], "beam_width": 5}, 422)["error"]["field"] == "beam_width"


def test_a_misspelt_parameter_is_named_with_its_fix(client):
    many = "&".join("a=" for _ in range(1000))
    for path, said in (
        ("/v1/users/1/history?limt=3", "did you mean 'limit'?"),
        ("/livez?all=1", "leave it out"),
        (f"/livez?{many}", "more than 0 parameters"),
        (f"/v1/users/1/history?{many}", "more than 3 parameters; leave out what does not exist"),
    ):
        answer = client.get(path)
        assert answer.status_code == 422
        assert said in answer.json()["error"]["message"]


@pytest.mark.parametrize("option", ["--host", "--tokens", "--items", "--store", "--models-dir", "--otlp", "--cors"])
def test_an_empty_option_is_refused(folder, option, capsys):
    assert main(["serve", str(folder), option, " ", "--check"]) == 2
    assert f"{option} is empty, as of a variable without a value" in capsys.readouterr().err
