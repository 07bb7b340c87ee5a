"""Authorisation: every endpoint with every scope, and invalid token files."""

import asyncio
import base64
import hashlib
import socket
from types import SimpleNamespace

import pytest

from beamwood.errors import InputError
from beamwood.serve.app import routes_of
from beamwood.serve.problems import Problem
from beamwood.serve.server import _Running, check_binding
from beamwood.serve.settings import ServeSettings
from beamwood.serve.tokens import SCOPES, Tokens
from clocks import Clock
from served import post, saved, serving

# Beside the methods and paths of a scope all others need "recommend", or no token at all.
PERMITTED = {
    "events": {"POST /v1/events", "GET /v1/users/{id}/history", "POST /v1/users/merge"},
    "items": {
        "GET /v1/items",
        "PUT /v1/items",
        "PUT /v1/items/availability",
        "PATCH /v1/items/{id}",
        "DELETE /v1/items/{id}",
    },
    "admin": {
        "DELETE /v1/users/{id}",
        "GET /v1/experiments",
        "PUT /v1/experiments",
        "DELETE /v1/experiments",
        "GET /v1/models",
        "POST /v1/models/load",
        "POST /v1/models/rollback",
    },
    "metrics": {"GET /metrics", "GET /page/live"},
    None: {"GET /livez", "GET /readyz", "GET /page.css", "GET /page.js"},
}


def line(name, scopes, token=None):
    return f"{name} {scopes} {hashlib.sha256((token or name).encode()).hexdigest()}\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("serve") / "model")[0]


@pytest.fixture
def tokens(tmp_path):
    path = tmp_path / "tokens"
    path.write_text("# who may ask\n\n" + "".join(line(f"t-{scope}", scope) for scope in SCOPES))
    return path


def bearer(token):
    return {"authorization": f"Bearer {token}"}


def test_every_endpoint_with_every_scope(folder, tokens):
    with serving(folder, tokens=tokens) as client:
        routes = routes_of(client.service)
        assert len(routes) >= 10
        assert {route.scope for route in routes} <= {None, *SCOPES}
        for route in routes:
            path = route.path.replace("{", "").replace("}", "")

            def status(headers, method=route.method, path=path):
                answer = client.request(method, path, headers=headers)
                assert "traceback" not in answer.text.lower()
                return answer.status_code

            if route.scope is None:
                assert status({}) == 200
                continue
            assert status({}) == status(bearer("wrong")) == status({"authorization": "Bearer"}) == 401
            assert status({"authorization": "Basic %%%"}) == 401
            for scope in SCOPES:
                assert (status(bearer(f"t-{scope}")) in (401, 403)) == (scope != route.scope), (route.path, scope)


def test_what_each_scope_permits(folder):
    with serving(folder) as client:
        routes = {f"{route.method} {route.path}": route.scope for route in routes_of(client.service)}
    for scope, permitted in PERMITTED.items():
        assert {name for name, needed in routes.items() if needed == scope} == permitted
    assert set(routes.values()) == {*PERMITTED, "recommend"}


def test_a_browser_sends_the_token_as_a_password(folder, tokens):
    with serving(folder, tokens=tokens) as client:
        basic = base64.b64encode(b"me:t-metrics").decode()
        assert client.get("/metrics", headers={"authorization": f"Basic {basic}"}).status_code == 200
        refused = client.get("/metrics")
        assert refused.headers["www-authenticate"] == "Bearer"
        assert refused.json()["error"]["code"] == "unauthorized"


def test_no_page_of_another_origin_changes_anything(folder):
    """A browser may send its password along; without a preflight it sends GET, and POST of what is no JSON. It names
    the page in any case.
    """
    with serving(folder) as client:
        client.headers["origin"] = "https://elsewhere.example"
        for route in routes_of(client.service):
            if route.method == "POST":
                answer = client.post(route.path, content=b"{}", headers={"content-type": "text/plain"})
                assert (answer.status_code, client.post(route.path).status_code) == (415, 415), route.path


def test_of_two_tokens_none_counts(folder, tokens):
    """A proxy may have checked the other one."""
    with serving(folder, tokens=tokens) as client:
        both = [("authorization", "Bearer wrong"), ("authorization", "Bearer t-admin")]
        for pair in (both, both[::-1], both[1:] * 2):
            answer = client.get("/v1/models", headers=pair)
            assert answer.status_code == 400
            assert answer.json()["error"]["message"] == "the header 'authorization' is sent twice; send it once"


def test_tokens_are_reloaded(folder, tokens):
    with serving(folder, tokens=tokens) as client:
        known = client.service.tokens
        tokens.write_text(line("new", "metrics,admin"))
        assert client.get("/metrics", headers=bearer("new")).status_code == 401
        known.reload()
        assert client.get("/metrics", headers=bearer("new")).status_code == 200
        assert client.get("/metrics", headers=bearer("t-metrics")).status_code == 401
        tokens.write_text("nonsense")
        with pytest.raises(InputError, match="line 1"):
            known.reload()
        assert client.get("/metrics", headers=bearer("new")).status_code == 200


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "holds no token"),
        ("a recommend", "line 1: write 'name scope"),
        ("a recommend " + "g" * 64, "hexadecimal"),
        (line("a", "recomend"), "did you mean 'recommend'"),
        (line("a", "admin") + line("a", "events"), "a name twice"),
        (line("a", "admin", "t") + line("b", "events", "t"), "a token twice"),
        ("a admin " + hashlib.sha256(b"").hexdigest(), "line 1: the hash is that of an empty token"),
    ],
)
def test_invalid_files_are_refused(tmp_path, content, said):
    path = tmp_path / "tokens"
    path.write_text(content)
    with pytest.raises(InputError, match=said):
        Tokens.read(path)
    with pytest.raises(InputError, match="cannot be read"):
        Tokens.read(tmp_path / "none")


def test_a_token_has_a_rate_limit(folder, tokens):
    with serving(folder, tokens=tokens, rate=0.5) as client:
        assert client.get("/metrics", headers=bearer("t-metrics")).status_code == 200
        refused = client.get("/metrics", headers=bearer("t-metrics"))
        assert refused.status_code == 429
        assert refused.json()["error"]["code"] == "rate_limited"
        assert int(refused.headers["retry-after"]) == 2
        assert client.get("/v1/models", headers=bearer("t-admin")).status_code == 200


def test_a_token_that_rests_saves_no_more_than_a_second_of_requests(tokens, monkeypatch):
    clock = Clock()
    monkeypatch.setattr("beamwood.serve.tokens.time", SimpleNamespace(monotonic=clock))
    known = Tokens.read(tokens, rate=3.0)

    def permitted():
        for count in range(100):
            try:
                known.check({b"authorization": b"Bearer t-admin"}, "admin")
            except Problem as problem:
                return count, problem.code
        return 100, ""

    assert permitted() == (3, "rate_limited")
    clock.now += 3600
    assert permitted() == (3, "rate_limited")
    clock.now += 2 / 3 + 0.01
    assert permitted() == (2, "rate_limited")


def test_remote_addresses_need_tokens(tokens):
    for host in ("0.0.0.0", "::", "192.168.0.1"):
        with pytest.raises(InputError, match="--tokens"):
            check_binding(ServeSettings(host=host))
        check_binding(ServeSettings(host=host, insecure=True))
        check_binding(ServeSettings(host=host, tokens=tokens))
    check_binding(ServeSettings(host="localhost"))


def test_a_service_for_this_machine_alone_has_neither_tokens_nor_remote_callers(tokens):
    assert ServeSettings().is_for_this_machine
    for more in ({"tokens": tokens}, {"insecure": True}, {"host": "0.0.0.0"}):
        assert not ServeSettings(**more).is_for_this_machine


def test_a_rate_without_tokens_is_refused(tokens):
    with pytest.raises(InputError, match="give --tokens"):
        check_binding(ServeSettings(rate=5.0))
    check_binding(ServeSettings(rate=5.0, tokens=tokens))


def test_a_reload_without_tokens_keeps_cursors(folder):
    with serving(folder) as client:
        cursor = post(client, "/v1/recommend", {"user": 11, "k": 2, "pages": True})["cursor"]
        with socket.socket() as unused:
            running = _Running(client.service, folder, unused)
            asyncio.run(running._reloaded())
        assert len(post(client, "/v1/recommend", {"cursor": cursor, "k": 2})["items"]) == 2


def test_a_cursor_from_before_a_restart_is_gone(folder):
    with serving(folder) as client:
        cursor = post(client, "/v1/recommend", {"user": 11, "k": 2, "pages": True})["cursor"]
    with serving(folder) as client:
        for given, status in ((cursor, 410), (cursor[:-1] + "A", 410), ("no cursor", 422)):
            assert post(client, "/v1/recommend", {"cursor": given}, status)["error"]["field"] == "cursor"
