"""The OpenAPI document is consistent, and its examples are accepted."""

import json
import re

import pytest

from beamwood.serve.app import routes_of
from beamwood.serve.problems import STATUS
from served import saved, serving


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    with serving(saved(tmp_path_factory.mktemp("serve") / "model")[0]) as client:
        yield client


def test_the_document(client):
    document = client.get("/openapi.json").json()
    told = [route for route in routes_of(client.service) if not route.hidden]
    assert {(path, method) for path, own in document["paths"].items() for method in own} == {
        (route.path, route.method.lower()) for route in told
    }
    schemas = document["components"]["schemas"]
    for name in re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(document)):
        assert name in schemas
    body = schemas["Recommend"]
    assert body["additionalProperties"] is False
    assert "beam_width" in body["properties"]
    names = [operation["operationId"] for own in document["paths"].values() for operation in own.values()]
    assert len(set(names)) == len(names)
    operation = document["paths"]["/v1/recommend"]["post"]
    assert {"200", "400", "401", "404", "409", "410", "413", "422", "429", "504"} <= set(operation["responses"])
    assert {"200", "404", "422"} <= set(document["paths"]["/v1/items/{id}"]["delete"]["responses"])
    # Of other methods and paths there is no operation, and a client that has left gets no answer.
    elsewhere = {STATUS[code] for code in ("method_not_allowed", "client_gone")}
    assert {int(status) for status in operation["responses"]} == {200, *STATUS.values()} - elsewhere
    every = [set(each["responses"]) for own in document["paths"].values() for each in own.values()]
    assert {"200", "400", "422", "431", "500", "503"} <= set.intersection(*every)
    assert operation["security"] == [{"token": ["recommend"]}]
    assert all(code in document["info"]["description"] for code in STATUS)


def test_responses_have_security_headers(client):
    answer = client.get("/openapi.json")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    data = client.get("/v1/models")
    assert data.headers["content-security-policy"] == "default-src 'none'"


def test_other_origins_may_ask_if_they_are_named(tmp_path, client):
    preflight = {"origin": "https://shop.example", "access-control-request-method": "POST"}
    asked = {"headers": {"origin": "https://shop.example"}, "json": {"history": []}}
    assert client.options("/v1/recommend", headers=preflight).status_code == 405
    assert "access-control-allow-origin" not in client.post("/v1/recommend", **asked).headers
    with serving(saved(tmp_path / "model")[0], cors=("https://shop.example",)) as named:
        for answer in (named.options("/v1/recommend", headers=preflight), named.post("/v1/recommend", **asked)):
            assert answer.status_code == 200
            assert answer.headers["access-control-allow-origin"] == "https://shop.example"
        other = named.options("/v1/recommend", headers=preflight | {"origin": "https://other.example"})
        assert other.status_code == 400
        assert "access-control-allow-origin" not in other.headers
