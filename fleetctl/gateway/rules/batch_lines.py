"""The lines of a batch's files, and the words of its server; pure. As OpenAI writes them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

URL = "/v1/chat/completions"
# Of a server that says it will do no more for a batch.
OVER = frozenset({"completed", "failed", "expired", "cancelled"})
# The server never began such a row.
_NOT_BEGUN = frozenset({"batch_expired", "batch_cancelled"})
# So many tokens wait at the server already: less at once may do.
TOO_MUCH = frozenset({"token_limit_exceeded"})


@dataclass(frozen=True, slots=True)
class Line:
    """Of an output or an error file. status: of the row's own answer; None: it was not asked."""

    custom_id: str
    status: int | None
    body: bytes = field(default=b"", repr=False)


def request_line(custom_id: str, body: Mapping[str, Any]) -> bytes:
    request = {"custom_id": custom_id, "method": "POST", "url": URL, "body": body}
    return json.dumps(request, ensure_ascii=False).encode() + b"\n"


def read_line(raw: bytes) -> Line | None:
    """None for what is not a line of such a file."""
    try:
        row = json.loads(raw)
        custom_id = str(row["custom_id"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    response, error = row.get("response"), row.get("error")
    if isinstance(response, dict) and isinstance(response.get("status_code"), int):
        body = json.dumps(response.get("body") or {}, ensure_ascii=False)
        return Line(custom_id, response["status_code"], body.encode())
    if isinstance(error, dict):
        if error.get("code") in _NOT_BEGUN:
            return Line(custom_id, None)
        return Line(custom_id, 500, json.dumps({"error": error}).encode())
    return None


def counts_of(document: Mapping[str, Any]) -> tuple[int, int]:
    """Rows that are done, and that failed."""
    found = document.get("request_counts")
    counts = found if isinstance(found, dict) else {}
    done, failed = counts.get("completed"), counts.get("failed")
    return (done if isinstance(done, int) else 0, failed if isinstance(failed, int) else 0)


def errors_of(document: Mapping[str, Any]) -> list[tuple[str, str, int | None]]:
    """Why a whole batch failed: code, message and line, from 1."""
    found = document.get("errors")
    rows = found.get("data") if isinstance(found, dict) else None
    told: list[tuple[str, str, int | None]] = []
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict):
            line = row.get("line")
            at = line if isinstance(line, int) else None
            told.append((str(row.get("code") or ""), str(row.get("message") or ""), at))
    return told
