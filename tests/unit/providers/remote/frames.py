"""A guest in a few lines: what it would write of a journal and a log, from any offsets on."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

EOF = b'{"e":"eof"}\n'


def started(at_s: float = 1.0, **identity: object) -> bytes:
    return line({"e": "started", "at": at_s, "keeper": "sb-1", **identity})


def ended(*, ok: bool = True, reason: str = "Completed", sandbox_open: bool = False) -> bytes:
    what = {"ok": ok, "infra": False, "reason": reason, "exit": 0 if ok else 1}
    return line({"e": "ended", "at": 2.0, "started_at": 1.0, **what, "open": sandbox_open})


def line(event: dict[str, object]) -> bytes:
    return json.dumps(event, separators=(",", ":")).encode() + b"\n"


def output(at: int, data: bytes, *, key: str = "b64") -> bytes:
    text = base64.b64encode(data).decode() if key == "b64" else data.hex()
    return line({"e": "log", "at": at, key: text})


def stream(
    journal: bytes, log: bytes, journal_at: int = 0, log_at: int = 0, *, piece: int = 7
) -> bytes:
    """All frames from the offsets on: pieces of log, lines of the journal in turn, then eof."""
    lines: Iterator[bytes] = iter(journal[journal_at:].splitlines(keepends=True))
    frames = []
    for at in range(log_at, len(log), piece):
        frames.append(output(at, log[at : at + piece], key="hex" if at % 2 else "b64"))
        frames.append(next(lines, b'{"e":"alive"}\n'))
    return b"".join([*frames, *lines, EOF])
