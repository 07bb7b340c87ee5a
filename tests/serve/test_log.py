"""The request log has one line per request, for all ids."""

import json

import pytest

from beamwood.serve.monitoring.log import RequestLog

ODD = "a\nevent=ready\r\x1b[31m\x85\u2028b"


@pytest.mark.parametrize("kind", ["text", "json"])
def test_a_request_is_one_line(kind, capsysbinary):
    log = RequestLog(kind, users=True, secret=b"")
    log.write({"user": log.user(ODD), "code": 200})
    log.flush()
    written = capsysbinary.readouterr().out
    assert len(written.decode().splitlines() if kind == "text" else written.splitlines()) == 1
    if kind == "json":
        assert json.loads(written)["user"] == ODD
    else:
        assert written == b"user=a\\x0aevent=ready\\x0d\\x1b[31m\\x85\\u2028b code=200\n"
