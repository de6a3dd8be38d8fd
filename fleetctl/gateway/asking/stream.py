"""What comes of a stream: whole lines to pass on, what was written so far, what was counted."""

import json
from dataclasses import dataclass, field
from typing import Any

from fleetctl.gateway.rules.usage import Tokens, usage_of, written_bytes

LINE_BYTES_MAX = 1 << 20  # passed on unread beyond it
_DATA = b"data:"


@dataclass(slots=True)
class Stream:
    """Of either protocol: server-sent events, or a JSON object a line.

    hide_usage: the task did not ask for the piece with the usage, which we did."""

    hide_usage: bool = False
    usage: Tokens | None = None
    _bytes: int = 0
    _pieces: int = 0
    _rest: bytes = field(default=b"", repr=False)
    _hidden: bool = False  # and the empty line after it

    @property
    def came(self) -> int:
        """At least as many tokens as were written: no token is shorter than a byte or a piece."""
        return max(self._bytes, self._pieces)

    def feed(self, data: bytes) -> bytes:
        """What to pass on of it."""
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        shown = [line + b"\n" for line in lines if self._shows(line)]
        if len(self._rest) > LINE_BYTES_MAX:
            self._bytes += len(self._rest)
            shown.append(self._rest)
            self._rest = b""
        return b"".join(shown)

    def end(self) -> bytes:
        """What is left to pass on when it has ended."""
        rest, self._rest = self._rest, b""
        return rest if rest and self._shows(rest) else b""

    def _shows(self, line: bytes) -> bool:
        text = line.strip()
        if not text:
            hidden, self._hidden = self._hidden, False
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
        usage = usage_of(reply)
        if usage is not None:
            self.usage = usage
        if self.hide_usage and "usage" in reply and not reply.get("choices"):
            self._hidden = True
            return False
        self._pieces += 1
        self._bytes += written_bytes(reply)
        return True
