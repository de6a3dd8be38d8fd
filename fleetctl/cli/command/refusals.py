"""Collects the refusals of a command on several objects, and prints them after its results: a
refused or missing object stops no other. Used by delete, suspend and resume.
"""

from __future__ import annotations

from collections.abc import Mapping

from fleetctl.cli.output.screen import Screen
from fleetctl.common.errors import NotFound, Refused

_CODES = {"refused": Refused.exit_code, "missing": NotFound.exit_code}


class Refusals:
    """The refusals. keys: of objects that were refused or do not exist. code: the exit code; 0
    without any."""

    def __init__(self, screen: Screen) -> None:
        self.screen = screen
        self.keys: set[str] = set()
        self.code = 0
        self._said: list[tuple[str, str]] = []

    def add(
        self,
        text: str,
        hint: str,
        code: int,
    ) -> None:
        """Adds a refusal, which `tell` shows. The first of several sets the exit code."""
        self._said.append((text, hint))
        self.code = self.code or code

    def take(self, result: Mapping[str, object]) -> bool:
        """Adds an entry of a reply where it is a refusal; returns False for other entries."""
        code = _CODES.get(str(result.get("outcome")), 0)
        if code:
            self.keys.add(str(result.get("key")))
            self.add(str(result.get("message")), str(result.get("hint") or ""), code)
        return bool(code)

    def tell(self) -> int:
        """Prints all refusals, and returns the exit code."""
        for text, hint in self._said:
            self.screen.error(text, hint=hint)
        return self.code
