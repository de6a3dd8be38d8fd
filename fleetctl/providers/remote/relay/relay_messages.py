"""Reads and writes the messages on a relay's line, as the guest does in
guest/remote/relay/calls.py; pure.

A sandbox may write anything: an invalid line is no message.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

BODY_BYTES_MAX = 16 * 1024 * 1024
# A longest body, encoded, and its head.
LINE_CHARACTERS_MAX = BODY_BYTES_MAX * 4 // 3 + 1024 * 1024
PIECE_BYTES_MAX = 1024 * 1024  # of an answer in one message
TOLD_HEADERS = ("content-type", "accept")
_NUMBER = re.compile(r"[0-9a-z.]{1,64}")
_METHOD = re.compile(r"[A-Z]{1,16}")
_PATH = re.compile(r"/[!-~]{0,8191}")


@dataclass(frozen=True, slots=True)
class RelayRequest:
    """have: bytes of its answer that the client was given over an earlier line."""

    number: str
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes = field(repr=False)
    have: int


@dataclass(frozen=True, slots=True)
class RelayCancelled:
    """The client of that request left."""

    number: str


@dataclass(frozen=True, slots=True)
class RelayOver:
    """The run has ended, and asks no more."""


@dataclass(slots=True)
class RelayAnswer:
    """News of an answer. end: it is whole; broken: it never will be."""

    status: int = 0  # 0: sent before
    headers: Mapping[str, str] = field(default_factory=dict)
    data: bytearray = field(default_factory=bytearray, repr=False)
    end: bool = False
    broken: bool = False


def read_message(line: str) -> RelayRequest | RelayCancelled | RelayOver | None:
    """Returns the message; None for an invalid line, and for a sign that the guest lives."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    if fields.get("e") == "over":
        return RelayOver()
    number = str(fields.get("n", ""))
    if not _NUMBER.fullmatch(number):
        return None
    if fields.get("cancel"):
        return RelayCancelled(number)
    return _parse_request(number, fields)


def write_answer(number: str, news: RelayAnswer) -> str:
    """Returns the lines for news of an answer."""
    pieces = [
        news.data[at : at + PIECE_BYTES_MAX] for at in range(0, len(news.data), PIECE_BYTES_MAX)
    ]
    messages: list[dict[str, object]] = [{"n": number, **_encode_piece(bytes(it))} for it in pieces]
    messages = messages or [{"n": number}]
    if news.status:
        messages[0] |= {"status": news.status, "headers": dict(news.headers)}
    messages[-1] |= {name: True for name in ("end", "broken") if getattr(news, name)}
    return "".join(json.dumps(it, separators=(",", ":")) + "\n" for it in messages)


def _parse_request(number: str, fields: Mapping[str, object]) -> RelayRequest | None:
    method = str(fields.get("method", ""))
    path = str(fields.get("path", ""))
    if not (_METHOD.fullmatch(method) and _PATH.fullmatch(path)):
        return None

    body = _parse_body(fields)
    headers = fields.get("headers")
    have = fields.get("have")
    if body is None:
        return None
    if not isinstance(headers, dict) or not isinstance(have, int) or have < 0:
        return None
    headers_kept = {name: str(headers[name]) for name in TOLD_HEADERS if name in headers}
    if any(not value.isprintable() for value in headers_kept.values()):
        return None
    return RelayRequest(
        number,
        method,
        path,
        headers_kept,
        body,
        have,
    )


def _parse_body(fields: Mapping[str, object]) -> bytes | None:
    try:
        if "b64" in fields:
            body = base64.b64decode(str(fields["b64"]), validate=True)
        else:
            body = str(fields.get("body", "")).encode()
    except (binascii.Error, ValueError):
        return None
    if len(body) <= BODY_BYTES_MAX:
        return body
    return None


def _encode_piece(data: bytes) -> dict[str, str]:
    """Returns the bytes as text where they are text: a cut may go through a letter."""
    try:
        return {"piece": data.decode()}
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(data).decode()}
