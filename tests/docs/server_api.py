"""The reference page of the server's API, from its OpenAPI document."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from fleetctl.server.app import ROUTES
from fleetctl.server.route_table import build_openapi
from tests.docs.fleet import ROOT

PAGE = ROOT / "docs" / "reference" / "server-api.md"
NOTE = "<!-- Written by `make reference`; edit the code, not this page. -->"
INTRODUCTION = "\n\n".join((
    "The HTTP API of [`fleetctl serve`](../how-to/share-one-server.md)."
    " `GET /api/v1/openapi.json` has the same as OpenAPI 3.1. Bodies and answers are JSON; a token"
    " goes into the header `Authorization: Bearer TOKEN`.",
    'Every refusal is `{"ok": false, "code": N, "errors": [...], "hint": "..."}`, where `code` is'
    " the [exit code](command-line.md) of the same verb: 2 is status 400, 3 is 409, 4 is 404, 5 is"
    " 409; a token that does not hold is 401, a role that does not suffice 403. Refused manifests"
    " have `findings`: file, line, column, message, hint, and severity: the work can `never` run as"
    " it is written, is `denied` by a policy, is in `conflict` with the stored object, lacks what"
    " may come `later`, or has no `capacity` now. An apply that needs variables of the user's"
    " environment answers `needEnv`, their names; send it again with `env`.",
    "Streams (`watch`, `follow`) are server-sent events. Each has an `id`; a client that comes back"
    " with it in `Last-Event-ID` gets what it missed. `reset` means that this is not known any"
    " more: read the list again. A list's `metadata.revision` is a `since` for the watch that"
    " follows it.",
))  # fmt: skip


def render_page() -> str:
    document = build_openapi(ROUTES)
    lines = ["# API of the server", "", NOTE, "", INTRODUCTION]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            lines += ["", f"## {method.upper()} `{path}`", "", *_operation(operation)]
    return "\n".join(lines) + "\n"


def _operation(operation: Mapping[str, Any]) -> Iterator[str]:
    role = operation.get("x-role")
    sort = next(iter(operation["responses"]["200"]["content"]))
    needs = f"Needs the role {role}." if role else "Needs no token."
    yield f"{operation['summary']} {needs} Answers `{sort}`."
    query = [it for it in operation["parameters"] if it["in"] == "query"]
    if query:
        yield from ("", "| parameter | type | meaning |", "| --- | --- | --- |")
        for it in query:
            yield f"| `{it['name']}` | {it['schema']['type']} | {it['description']} |"
    body = operation.get("requestBody")
    if body is None:
        return
    ((media, content),) = body["content"].items()
    if media != "application/json":
        yield from ("", f"The body is `{media}`.")
        return
    schema = content["schema"]
    yield from ("", "| field of the body | type | meaning |", "| --- | --- | --- |")
    for name, field in schema["properties"].items():
        sort = field.get("type") or " or ".join(f"`{json.dumps(it)}`" for it in field["enum"])
        needed = "; required" if name in schema["required"] else ""
        yield f"| `{name}` | {sort}{needed} | {field.get('description', '')} |"
