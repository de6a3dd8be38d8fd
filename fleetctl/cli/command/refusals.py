"""What a command on several objects could not do, reported after what it did: one that is refused
or missing stops no other. Used by delete, suspend and resume.
"""

from __future__ import annotations

from collections.abc import Mapping

from fleetctl.cli.output.render import Screen
from fleetctl.common.errors import NotFound, Refused

_CODES = {"refused": Refused.exit_code, "missing": NotFound.exit_code}


class Refusals:
    """keys: of objects that were refused or are not there. code: the exit code; 0 without any."""

    def __init__(self, screen: Screen) -> None:
        self.screen = screen
        self.keys: set[str] = set()
        self.code = 0
        self._said: list[tuple[str, str]] = []

    def add(self, text: str, hint: str, code: int) -> None:
        """Notes one, to be shown by `tell`. The first of several gives the exit code."""
        self._said.append((text, hint))
        self.code = self.code or code

    def take(self, result: Mapping[str, object]) -> bool:
        """Notes an entry of a reply where that is a refusal; False where it is none."""
        code = _CODES.get(str(result.get("outcome")), 0)
        if code:
            self.keys.add(str(result.get("key")))
            self.add(str(result.get("message")), str(result.get("hint") or ""), code)
        return bool(code)

    def tell(self) -> int:
        """Shows them all, and returns the exit code."""
        for text, hint in self._said:
            self.screen.error(text, hint=hint)
        return self.code
