"""What goes over a relay's line, as the guest writes and reads it in guest/remote/relay/calls.py;
pure.

A sandbox may write anything: what makes no sense is no message.
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
class Request:
    """have: bytes of its answer that the client was given over an earlier line."""

    number: str
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes = field(repr=False)
    have: int


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The client of that number left."""

    number: str


@dataclass(frozen=True, slots=True)
class Over:
    """The run has ended, and asks no more."""


@dataclass(slots=True)
class News:
    """What there is to tell of one answer. end: it is whole; broken: it never will be."""

    status: int = 0  # 0: told before
    headers: Mapping[str, str] = field(default_factory=dict)
    data: bytearray = field(default_factory=bytearray, repr=False)
    end: bool = False
    broken: bool = False


def read(line: str) -> Request | Cancelled | Over | None:
    """None for what is no message, and for a word that its guest lives."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    if fields.get("e") == "over":
        return Over()
    number = str(fields.get("n", ""))
    if not _NUMBER.fullmatch(number):
        return None
    return Cancelled(number) if fields.get("cancel") else _request(number, fields)


def written(number: str, news: News) -> str:
    """The lines that tell it."""
    pieces = [
        news.data[at : at + PIECE_BYTES_MAX] for at in range(0, len(news.data), PIECE_BYTES_MAX)
    ]
    messages: list[dict[str, object]] = [{"n": number, **_piece(bytes(it))} for it in pieces]
    messages = messages or [{"n": number}]
    if news.status:
        messages[0] |= {"status": news.status, "headers": dict(news.headers)}
    messages[-1] |= {name: True for name in ("end", "broken") if getattr(news, name)}
    return "".join(json.dumps(it, separators=(",", ":")) + "\n" for it in messages)


def _request(number: str, fields: Mapping[str, object]) -> Request | None:
    method, path = str(fields.get("method", "")), str(fields.get("path", ""))
    headers, have = fields.get("headers"), fields.get("have")
    body = _body(fields)
    if body is None or not (_METHOD.fullmatch(method) and _PATH.fullmatch(path)):
        return None
    if not isinstance(headers, dict) or not isinstance(have, int) or have < 0:
        return None
    headers_kept = {name: str(headers[name]) for name in TOLD_HEADERS if name in headers}
    if any(not value.isprintable() for value in headers_kept.values()):
        return None
    return Request(number, method, path, headers_kept, body, have)


def _body(fields: Mapping[str, object]) -> bytes | None:
    try:
        if "b64" in fields:
            body = base64.b64decode(str(fields["b64"]), validate=True)
        else:
            body = str(fields.get("body", "")).encode()
    except (binascii.Error, ValueError):
        return None
    return body if len(body) <= BODY_BYTES_MAX else None


def _piece(data: bytes) -> dict[str, str]:
    """As text where it is some: a cut may go through a letter."""
    try:
        return {"piece": data.decode()}
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(data).decode()}
