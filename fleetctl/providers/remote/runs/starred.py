"""Masks values of secrets in the output of a guest without Python, whose shell cannot mask: each
byte of a value becomes a `*`, so that offsets stay equal to the sandbox's. Called by run_mirror.py.

Guests in Python mask their own output (guest/journal/masking.py), which passes unchanged.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable

from fleetctl.guest.journal.masking import Masking, merged

STAR = b"*"
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*"')


class StarredOutput:
    """A log with masked values. Bytes that may begin a value are kept back until more arrive; a new
    stream sends them again.
    """

    def __init__(self, masking: Masking, write: Callable[[int, bytes], None]) -> None:
        self._masking = masking
        self._write = write
        self.forget()

    def forget(self) -> None:
        """Forgets the bytes that were kept back, which come again."""
        self._at = 0
        self._held = b""
        self._covered = 0

    def take(self, at: int, data: bytes) -> None:
        """Takes `data`, whose first byte has offset `at`. Raises OSError."""
        if self._held and at > self._at + len(self._held):
            self.flush()  # the bytes between were dropped in the sandbox
        if self._held:
            data = self._held + data[self._at + len(self._held) - at :]
        else:
            self._at = at
            self._covered = 0
        self._put(data, len(data) - self._masking.unfinished(data))

    def flush(self) -> None:
        """Writes the rest: no more comes. Raises OSError."""
        self._put(self._held, len(self._held))

    def _put(self, data: bytes, cut: int) -> None:
        spans = merged([(0, self._covered), *self._masking.find_spans(data)])
        stars = _star_spans(data, spans)[:cut]
        if stars:
            self._write(self._at, stars)
        reach = max((end for begin, end in spans if begin < cut or begin == 0), default=0)
        into = max(0, reach - cut) if spans and (self._covered or cut) else 0
        self._at, self._held, self._covered = self._at + cut, data[cut:], into


def starred_line(masking: Masking, line: bytes) -> bytes:
    """Returns a line of a journal, of the same length, masked in its texts and encoded content."""

    def star(text: re.Match[bytes]) -> bytes:
        return _star_spans(text[0], masking.find_spans(text[0]))

    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return line  # torn, or no JSON: its reader finds out
    if isinstance(event, dict):
        for key, decode, encode in _ENCODINGS:
            text = event.get(key)
            if isinstance(text, str):
                raw = decode(text)
                if found := masking.find_spans(raw):
                    stars = encode(_star_spans(raw, found))
                    line = line.replace(text.encode(), stars.encode(), 1)
    return _TEXT.sub(star, line)


def _star_spans(data: bytes, spans: list[tuple[int, int]]) -> bytes:
    if not spans:
        return data
    stars = bytearray(data)
    for begin, end in spans:
        stars[begin:end] = STAR * (end - begin)
    return bytes(stars)


def _of_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return b""


def _of_hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""


def _base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


_ENCODINGS: tuple[tuple[str, Callable[[str], bytes], Callable[[bytes], str]], ...] = (
    ("b64", _of_base64, _base64_of),
    ("hex", _of_hex, bytes.hex),
)
