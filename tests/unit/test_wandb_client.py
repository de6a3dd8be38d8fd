"""The calls to W&B over HTTP, against a server that answers as it is told."""

from __future__ import annotations

import asyncio
import base64
import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from fleetctl.common.errors import FleetctlError, NotFound, Refused, Unavailable
from fleetctl.wandb import calls

KEY = "canary-" + "0" * 40


class Service(http.server.HTTPServer):
    """answer: status, headers and body of all that is asked. asked: requests with their headers."""

    answer: tuple[int, dict[str, str], bytes] = (200, {}, b"{}")

    def __init__(self) -> None:
        self.asked: list[tuple[dict[str, str], Any]] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def says(self, data: Any, status: int = 200, **headers: str) -> None:
        self.answer = status, headers, json.dumps(data).encode()


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Service

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append((dict(self.headers), json.loads(body)))
        status, headers, answer = self.server.answer
        self.send_response(status)
        for name, text in headers.items():
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def ask(service: Service) -> Any:
    asking = calls.make_connector()(service.url, KEY)
    return asyncio.run(asking("GetSweep", "query", {"name": "a"}))


def test_a_call_has_its_name_its_variables_and_the_key(service: Service) -> None:
    service.says({"data": {"project": None}})
    assert ask(service) == {"project": None}
    ((headers, body),) = service.asked
    assert base64.b64decode(headers["Authorization"].split()[1]) == f"api:{KEY}".encode()
    assert body == {"query": "query", "variables": {"name": "a"}, "operationName": "GetSweep"}


ERRORS = {"errors": [{"message": "no such thing"}]}


@pytest.mark.parametrize(
    ("status", "body", "sort", "reason", "wait_s"),
    [
        (401, ERRORS, Unavailable, "KeyRefused", 0.0),
        (403, ERRORS, Unavailable, "AccessDenied", 0.0),
        (404, ERRORS, NotFound, "", 0.0),
        (400, ERRORS, Refused, "", 0.0),
        (200, ERRORS, Refused, "", 0.0),
        (429, ERRORS, Unavailable, "RateLimited", 7.0),
        (503, ERRORS, Unavailable, "Unavailable", 7.0),
        (502, "<html>", Unavailable, "Unavailable", 7.0),
        (200, "<html>", Unavailable, "Unavailable", 7.0),
        (307, {}, Unavailable, "Unavailable", 7.0),
    ],
)
def test_what_is_no_answer_says_what_it_is_and_never_the_key(
    service: Service, status: int, body: Any, sort: type[FleetctlError], reason: str, wait_s: float
) -> None:
    headers = {"Retry-After": "7", "Location": f"{service.url}/elsewhere"}
    service.says(body, status, **headers)
    with pytest.raises(sort) as caught:
        ask(service)
    error = caught.value
    assert getattr(error, "reason", "") == reason
    assert getattr(error, "retry_after_s", 0.0) == wait_s
    assert KEY not in f"{error!r} {error.hint}"
    assert len(service.asked) == 1  # a redirect is not followed, so the key goes nowhere else


def test_a_service_that_is_away_is_unreachable() -> None:
    with Service() as gone:
        url = gone.url
    with pytest.raises(Unavailable) as caught:
        asyncio.run(calls.make_connector()(url, KEY)("Heartbeat", "q", {}))
    assert caught.value.reason == "Unreachable"
    assert str(caught.value) == f"W&B at {url} does not answer: Connection refused"
    assert "baseUrl" in caught.value.hint


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"project": []},
        {"project": {"name": "p", "entityName": "e", "sweep": {"name": "s"}}},
        {"project": {"name": "p", "entityName": "e", "sweep": {"id": "k", "state": "RUNNING"}}},
    ],
)
def test_an_answer_that_lacks_what_it_must_have_decides_nothing(
    service: Service, data: dict[str, Any]
) -> None:
    service.says({"data": data})
    asking = calls.make_connector()(service.url, KEY)
    with pytest.raises(Unavailable) as caught:
        asyncio.run(calls.read_sweep(asking, "s", entity="e", project="p"))
    assert caught.value.reason == "UnknownAnswer"


def test_a_server_of_before_is_asked_for_less() -> None:
    async def older(_operation: str, query: str, _variables: Any) -> Any:
        if "runCount" in query:
            raise Refused('Cannot query field "runCount" on type "Sweep".')
        node = {"id": "k", "name": "s", "state": "Running", "config": "method: grid"}
        return {"project": {"name": "p", "entityName": "e", "sweep": node}}

    found = asyncio.run(calls.read_sweep(older, "s", entity="e", project="p"))
    assert found is not None
    assert (found.state, found.run_count, found.entity) == ("RUNNING", None, "e")


def test_a_configuration_is_written_as_yaml_of_both_versions_reads_it() -> None:
    config = {"parameters": {"lr": {"values": [3e-5, 1e-10, 0.1]}, "tag": {"value": "010"}}}
    text = calls.config_text(config)
    assert yaml.safe_load(text) == config == calls.config_of(text)
    assert "3.0e-05" in text and "'010'" in text


@pytest.mark.parametrize(
    ("base_url", "shown"),
    [
        ("", "https://wandb.ai"),
        ("https://api.wandb.ai", "https://wandb.ai"),
        ("https://api.wandb.example.com", "https://app.wandb.example.com"),
        ("https://wandb.example.com", "https://wandb.example.com"),
    ],
)
def test_people_look_at_a_server_at_its_own_address(base_url: str, shown: str) -> None:
    assert calls.app_url(base_url) == shown
