"""One call of `execute`: what is asked, and what came of it. Used by runtime.py; asks nobody."""

from __future__ import annotations

import contextvars
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fleetctl.interpreter.errors import redact
from fleetctl.interpreter.options import Options
from fleetctl.interpreter.result import FinalOutput
from fleetctl.interpreter.session.events import ExecutionEvents, output_keys

Callback = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Work:
    code: str
    variables: Mapping[str, Any]
    fields: tuple[str, ...]
    profile: str
    callback: Callback | None
    context: contextvars.Context = field(default_factory=contextvars.copy_context)  # of the caller


@dataclass(frozen=True, slots=True)
class Executed:
    """failed: an error of the code's own ended it, which `value` tells."""

    value: str | FinalOutput
    failed: bool


def read_answer(
    answer: Mapping[str, Any], events: ExecutionEvents, options: Options
) -> tuple[Executed, dict[str, Any]]:
    """What the driver's answer comes to, and the event that tells of it."""
    if answer["final"] is not None:
        final = json.loads(answer["final"])
        ended = events.complete("final_output", success=True, output_keys=output_keys(final))
        return Executed(FinalOutput(final), failed=False), ended
    stdout, stderr = _summarised(answer["stdout"], options), answer["stderr"]
    if not stderr:
        ended = events.complete("stdout", success=True, stdout_preview=stdout)
        return Executed(stdout, failed=False), ended
    preview = redact(stderr, options.secrets.values())
    ended = events.complete("stderr", success=not answer["failed"], stderr_preview=preview)
    text = stdout + ("\n" if stdout else "") + stderr
    return Executed(text, failed=answer["failed"]), ended


def plain(value: Any) -> Any:
    """A variable as it is when it can travel, else its text."""
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return str(value)
    return value


def _summarised(text: str, options: Options) -> str:
    limit = options.summary_threshold
    if limit is None or len(text) <= limit:
        return text
    prefix = text[: options.summary_prefix]
    lines = len(text.splitlines())
    return f'[Output: {len(text):,} chars, {lines:,} lines]\nPrefix: "{prefix}..."'
