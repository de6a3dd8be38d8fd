"""Reads a stream: whole lines to pass on, the text written so far, the tokens counted."""

import json
from dataclasses import dataclass, field
from typing import Any

from fleetctl.gateway.rules.usage import TokenCount, usage_of, written_bytes

LINE_BYTES_MAX = 1 << 20  # passed on unread beyond it
_DATA = b"data:"


@dataclass(slots=True)
class AnswerStream:
    """A stream of either protocol: server-sent events, or a JSON object a line.

    hide_usage: the task did not request the piece with the usage; the gateway did.
    """

    hide_usage: bool = False
    usage: TokenCount | None = None
    first: dict[str, Any] | None = field(default=None, repr=False)
    _bytes: int = 0
    _pieces: int = 0
    _rest: bytes = field(default=b"", repr=False)
    _hidden: bool = False  # and the empty line after it

    @property
    def came(self) -> int:
        """Returns at least as many tokens as were written: no token is shorter than a byte or a
        piece.
        """
        return max(self._bytes, self._pieces)

    def feed(self, data: bytes) -> bytes:
        """Returns the bytes of `data` to pass on."""
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        shown = [line + b"\n" for line in lines if self._shows(line)]
        if len(self._rest) > LINE_BYTES_MAX:
            self._bytes += len(self._rest)
            shown.append(self._rest)
            self._rest = b""
        return b"".join(shown)

    def end(self) -> bytes:
        """Returns the rest to pass on when the stream has ended."""
        rest = self._rest
        self._rest = b""
        if rest and self._shows(rest):
            return rest
        return b""

    def _shows(self, line: bytes) -> bool:
        text = line.strip()
        if not text:
            hidden = self._hidden
            self._hidden = False
            return not hidden
        if text.startswith(_DATA):
            text = text[len(_DATA) :].lstrip()
        if not text.startswith(b"{"):
            return True  # `[DONE]`, a comment, the name of an event
        try:
            reply: dict[str, Any] = json.loads(text)
        except ValueError:
            self._bytes += len(text)
            return True
        self.first = reply if self.first is None else self.first
        usage = usage_of(reply)
        if usage is not None:
            # In some protocols one event counts the prompt, and another one the answer.
            before = self.usage or TokenCount()
            inward = max(before.inward, usage.inward)
            self.usage = TokenCount(inward, max(before.outward, usage.outward))
        if self.hide_usage and "usage" in reply and not reply.get("choices"):
            self._hidden = True
            return False
        self._pieces += 1
        self._bytes += written_bytes(reply)
        return True
