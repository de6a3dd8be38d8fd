"""The OpenAPI document is true: requests made from it, of the right form and of wrong ones, get
answers that it names, no fault of the server, and nothing without a token.

Schemathesis makes the requests, the same in each run. `watch` and `follow` are left out, for such
an answer does not end; tests/api/test_api_streams.py holds them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator

from fleetctl.server.reads import QUERIES
from tests.api.served import ServedFleet, job

HOST = "fleet.example.org"
CHECKS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance",
    "response_headers_conformance", "response_schema_conformance",
)  # fmt: skip
STREAMS = ("watch", "follow")
# In paths: what is there, and what is not; a text by chance would never be there.
KNOWN = {
    "plural": ["batchjobs", "sweeps"],
    "name": ["seen", "unseen"],
    "run": ["seen-0", "unseen-0"],
    "query": [*QUERIES, "unknown"],
}
HANG_S = 1200.0


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedFleet]:
    """A server behind a proxy: nobody is known by the connection alone."""
    place = tmp_path_factory.mktemp("document")
    fleet = ServedFleet(place / "home", "--behind-proxy", "--name", HOST)
    fleet.ok("apply", "-f", "-", "--wait", stdin=job("seen", tasks=2))
    yield fleet
    fleet.close()


def read_document(served: ServedFleet, headers: dict[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(
        f"{served.url}/api/v1/openapi.json", headers=headers, timeout=120
    ).json()
    for path, methods in found["paths"].items():
        for operation in methods.values():
            close_schemas(operation["responses"]["200"])
            kept = [it for it in operation["parameters"] if it["name"] not in STREAMS]
            operation["parameters"] = kept
            for it in kept:
                if it["in"] == "path" and (it["name"] != "plural" or "{name}" in path):
                    it["schema"] = {"enum": KNOWN[it["name"]]}
    return found


def close_schemas(part: Any) -> None:
    """Makes a field that the document does not name a fault: clients may get more, from a later
    version, but this one sends what its document has."""
    if isinstance(part, list):
        for it in part:
            close_schemas(it)
    elif isinstance(part, dict):
        if "properties" in part:
            part["additionalProperties"] = False
        for it in part.values():
            close_schemas(it)


def send_requests(served: ServedFleet, place: Path, *flags: str) -> str:
    """Returns the report of Schemathesis about a run without a failure."""
    headers = {"host": HOST, "Authorization": f"Bearer {served.token('all', 'admin', '-A')}"}
    path = place / "openapi.json"
    path.write_text(json.dumps(read_document(served, headers)))
    program = Path(sys.executable).parent / "schemathesis"
    words = [str(program), "run", str(path), "--url", served.url]
    for name, value in headers.items():
        words += ["-H", f"{name}: {value}"]
    words += ["--checks", ",".join(CHECKS), "--seed", "1", "--generation-deterministic"]
    words += ["--no-shrink", "--continue-on-failure", "--rate-limit", "200/s"]
    done = subprocess.run(
        [*words, *flags], cwd=place, capture_output=True, text=True, timeout=HANG_S
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2000:]
    return done.stdout


def test_requests_of_every_operation_get_answers_that_the_document_names(
    served: ServedFleet, tmp_path: Path
) -> None:
    shown = send_requests(served, tmp_path, "--phases", "fuzzing", "--max-examples", "3")
    operations = json.loads((tmp_path / "openapi.json").read_text())["paths"].values()
    assert f"Tested: {sum(map(len, operations))}" in shown


def test_each_good_answer_in_json_has_a_schema(served: ServedFleet) -> None:
    headers = {"host": HOST, "Authorization": f"Bearer {served.token('all', 'admin', '-A')}"}
    for path, methods in read_document(served, headers)["paths"].items():
        for method, operation in methods.items():
            content = operation["responses"]["200"]["content"]
            if "application/json" not in content or path.endswith("openapi.json"):
                continue
            schema = content["application/json"]["schema"]
            assert schema["required"], (method, path)
            Draft202012Validator.check_schema(schema)


def test_what_is_there_has_the_form_that_the_document_names(served: ServedFleet) -> None:
    """Schemathesis makes few requests that reach an object; these all do."""
    headers = {"host": HOST, "Authorization": f"Bearer {served.token('all', 'admin', '-A')}"}
    paths = read_document(served, headers)["paths"]
    asked: dict[str, tuple[str, Any]] = {
        "/api/v1/{plural}": ("/api/v1/batchjobs?specs=true", None),
        "/api/v1/objects": ("/api/v1/objects", None),
        "/api/v1/kinds": ("/api/v1/kinds", None),
        "/api/v1/namespaces": ("/api/v1/namespaces", None),
        "/api/v1/events": ("/api/v1/events", None),
        "/api/v1/whoami": ("/api/v1/whoami", None),
        "/api/v1/cost": ("/api/v1/cost", None),
        "/api/v1/graph": ("/api/v1/graph?of=batchjob/seen", None),
        "/api/v1/audit": ("/api/v1/audit", None),
        "/api/v1/plan": ("/api/v1/plan", {"manifest": job("new"), "report": True, "diff": True}),
        "/api/v1/apply": ("/api/v1/apply", {"manifest": job("formed"), "dryRun": True}),
        "/api/v1/wait": (
            "/api/v1/wait",
            {"keys": ["batchjob/seen", "job/seen"], "timeoutSeconds": 0},
        ),
        "/api/v1/suspend": ("/api/v1/suspend", {"keys": ["batchjob/seen", "batchjob/none"]}),
        "/api/v1/resume": ("/api/v1/resume", {"keys": ["batchjob/seen"]}),
        "/api/v1/retry": ("/api/v1/retry", {"keys": ["batchjob/seen"], "which": "failed"}),
        "/api/v1/set": ("/api/v1/set", {"key": "batchjob/seen", "labels": {"a": "b"}}),
        "/api/v1/scale": ("/api/v1/scale", {"key": "batchjob/seen", "parallelism": 2}),
    }
    for end in ("", "/tasks", "/results", "/states", "/plots", "/events"):
        asked[f"/api/v1/{{plural}}/{{name}}{end}"] = (f"/api/v1/batchjobs/seen{end}", None)
    with httpx.Client(base_url=served.url, headers=headers, timeout=120) as client:
        for path, (address, body) in asked.items():
            method = "get" if body is None else "post"
            answer = client.request(method.upper(), address, json=body)
            assert answer.status_code == 200, answer.text
            responses = paths[path][method]["responses"]
            schema = responses["200"]["content"]["application/json"]["schema"]
            Draft202012Validator(schema).validate(answer.json())


@pytest.mark.only_all(reason="hundreds of requests for each operation")
def test_many_requests_of_every_operation(served: ServedFleet, tmp_path: Path) -> None:
    send_requests(served, tmp_path, "--phases", "coverage,fuzzing", "--max-examples", "20")


def test_no_operation_answers_without_a_token_but_those_that_say_so(served: ServedFleet) -> None:
    headers = {"host": HOST, "Authorization": f"Bearer {served.token('all', 'admin', '-A')}"}
    operations = [
        (path, method, operation)
        for path, methods in read_document(served, headers).get("paths", {}).items()
        for method, operation in methods.items()
    ]
    assert len(operations) > 40
    with httpx.Client(base_url=served.url, timeout=120) as client:
        for at, (path, method, operation) in enumerate(operations):
            for name, words in KNOWN.items():
                path = path.replace(f"{{{name}}}", words[0])
            # Each from an address of its own: many wrong tokens of one are stopped.
            for given in ({}, {"Authorization": "Bearer flt_00000000_x"}):
                answer = client.request(
                    method.upper(),
                    path,
                    headers={"host": HOST, "x-forwarded-for": f"10.0.0.{at}", **given},
                    json={} if method == "post" else None,
                )
                if operation["security"]:
                    assert answer.status_code == 401, (method, path)
    open_to_all = {path for path, _, operation in operations if not operation["security"]}
    assert open_to_all == {
        "/api/v1/openapi.json", "/api/v1/webhooks/push", "/healthz", "/readyz",
    }  # fmt: skip


def test_a_method_that_is_not_there_is_named_with_those_that_are(served: ServedFleet) -> None:
    answer = httpx.put(f"{served.url}/api/v1/kinds", headers={"host": HOST}, json={}, timeout=120)
    assert answer.status_code == 405
    assert "GET" in answer.headers["allow"]
    assert answer.json()["code"] == 4
