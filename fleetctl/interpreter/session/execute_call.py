"""One call of `execute`: its request, and its result. Used by runtime.py; sends no request."""

from __future__ import annotations

import contextvars
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fleetctl.interpreter.interpreter_errors import redact_text
from fleetctl.interpreter.options import InterpreterOptions
from fleetctl.interpreter.result import FinalOutput
from fleetctl.interpreter.session.execution_events import ExecutionEvents, output_keys

Callback = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class ExecuteRequest:
    code: str
    variables: Mapping[str, Any]
    fields: tuple[str, ...]
    profile: str
    callback: Callback | None
    context: contextvars.Context = field(default_factory=contextvars.copy_context)  # of the caller


@dataclass(frozen=True, slots=True)
class ExecuteResult:
    """failed: an error of the code's own ended it, described by `value`."""

    value: str | FinalOutput
    failed: bool


def read_answer(
    answer: Mapping[str, Any],
    events: ExecutionEvents,
    options: InterpreterOptions,
) -> tuple[ExecuteResult, dict[str, Any]]:
    """Returns the result in the driver's reply, and the event that reports it."""
    if answer["final"] is not None:
        final = json.loads(answer["final"])
        ended = events.complete("final_output", success=True, output_keys=output_keys(final))
        return ExecuteResult(FinalOutput(final), failed=False), ended
    stdout = _summarise_output(answer["stdout"], options)
    stderr = answer["stderr"]
    if not stderr:
        ended = events.complete("stdout", success=True, stdout_preview=stdout)
        return ExecuteResult(stdout, failed=False), ended
    preview = redact_text(stderr, options.secrets.values())
    ended = events.complete("stderr", success=not answer["failed"], stderr_preview=preview)
    text = stdout + ("\n" if stdout else "") + stderr
    return ExecuteResult(text, failed=answer["failed"]), ended


def plain_value(value: Any) -> Any:
    """Returns a variable unchanged when it can travel, else its text."""
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return str(value)
    return value


def _summarise_output(text: str, options: InterpreterOptions) -> str:
    limit = options.summary_threshold
    if limit is None or len(text) <= limit:
        return text
    prefix = text[: options.summary_prefix]
    lines = len(text.splitlines())
    return f'[Output: {len(text):,} chars, {lines:,} lines]\nPrefix: "{prefix}..."'
