"""Defines the errors of interpreters, and their messages."""

from __future__ import annotations

import re
from collections.abc import Iterable

from fleetctl.common.errors import FleetctlError

START_ANEW = "the code is never run again by itself; the next execute() starts a new sandbox"
_CREDENTIALS = (
    re.compile(r"()\bsk-[A-Za-z0-9_-]{8,}"),
    re.compile(r"(\bbearer\s+)[^\s,;]+", re.IGNORECASE),
    re.compile(r"((?:api[_-]?key|token|secret|password)\s*[=:]\s*)[^\s,;]+", re.IGNORECASE),
)
_SHORTEST_SECRET = 4  # shorter values would blank out half of any text


class InterpreterError(FleetctlError):
    """The sandbox, not the code in it, went wrong: it could not start, ended, or took too long.

    What code itself does wrong is not an exception but text that `execute` returns.
    """


class InvalidArgument(ValueError):
    """A helper of ours does not take an argument. In the code that called it: ValueError."""


def redact_text(text: str, secrets: Iterable[str]) -> str:
    """Returns `text` without these values, and without what looks like a credential."""
    for value in secrets:
        if len(value) >= _SHORTEST_SECRET:
            text = text.replace(value, "***")
    for pattern in _CREDENTIALS:
        text = pattern.sub(r"\1***", text)
    return text
