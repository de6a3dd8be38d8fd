"""The lines of a batch's files, and the codes of its server; pure. As OpenAI writes them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

URL = "/v1/chat/completions"
# Error codes of a server that does no more work for a batch.
OVER = frozenset({"completed", "failed", "expired", "cancelled"})
# The server never began such a row.
_NOT_BEGUN = frozenset({"batch_expired", "batch_cancelled"})
# Too many tokens wait at the server already: less at once may do.
TOO_MUCH = frozenset({"token_limit_exceeded"})


@dataclass(frozen=True, slots=True)
class BatchLine:
    """A line of an output or an error file. status: status of the row's own answer; None if the row
    was not asked.
    """

    custom_id: str
    status: int | None
    body: bytes = field(default=b"", repr=False)


def request_line(custom_id: str, body: Mapping[str, Any]) -> bytes:
    request = {"custom_id": custom_id, "method": "POST", "url": URL, "body": body}
    return _encode_json(request) + b"\n"


def _encode_json(value: object) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # half a surrogate pair: JSON can hold it, UTF-8 cannot
        return json.dumps(value).encode()


def read_line(raw: bytes) -> BatchLine | None:
    """Parses a line of such a file; returns None for any other text."""
    try:
        row = json.loads(raw)
        custom_id = str(row["custom_id"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    response = row.get("response")
    error = row.get("error")
    if isinstance(response, dict) and isinstance(response.get("status_code"), int):
        return BatchLine(
            custom_id, response["status_code"], _encode_json(response.get("body") or {})
        )
    if isinstance(error, dict):
        if error.get("code") in _NOT_BEGUN:
            return BatchLine(custom_id, None)
        return BatchLine(custom_id, 500, json.dumps({"error": error}).encode())
    return None


def counts_of(document: Mapping[str, Any]) -> tuple[int, int]:
    """Rows that are done, and that failed."""
    found = document.get("request_counts")
    counts = found if isinstance(found, dict) else {}
    done = counts.get("completed")
    failed = counts.get("failed")
    return (done if isinstance(done, int) else 0, failed if isinstance(failed, int) else 0)


def errors_of(document: Mapping[str, Any]) -> list[tuple[str, str, int | None]]:
    """Returns the reasons why a whole batch failed: code, message and line, from 1."""
    found = document.get("errors")
    rows = found.get("data") if isinstance(found, dict) else None
    told: list[tuple[str, str, int | None]] = []
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict):
            line = row.get("line")
            at = line if isinstance(line, int) else None
            told.append((str(row.get("code") or ""), str(row.get("message") or ""), at))
    return told
