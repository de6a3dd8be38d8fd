"""One call of `execute`: its request, its result, and the events for `execution_event_callback` at
its begin and end.
"""

from __future__ import annotations

import contextvars
import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fleetctl.interpreter.options import InterpreterOptions
from fleetctl.interpreter.result import FinalOutput, redact_text

Callback = Callable[[dict[str, Any]], None]

PREVIEW_CHARACTERS_MAX = 240
KEYS_MAX = 50


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


@dataclass(frozen=True, slots=True)
class ExecutionEvents:
    """Makes the events of an execution; sends none."""

    code: str
    profile: str
    started_at_s: float = field(default_factory=time.time)

    def start(self) -> dict[str, Any]:
        return {"phase": "start", "timestamp": self.started_at_s, **self._describe_call()}

    def complete(
        self,
        result_kind: str,
        *,
        success: bool,
        **more: Any,
    ) -> dict[str, Any]:
        """Returns the event that ends the call. result_kind: `final_output`, `stdout`, `stderr`
        or `exception`.
        """
        now_s = time.time()
        return {
            "phase": "complete",
            "timestamp": now_s,
            "duration_ms": int((now_s - self.started_at_s) * 1000),
            **self._describe_call(),
            "success": success,
            "result_kind": result_kind,
            **more,
        }

    def _describe_call(self) -> dict[str, Any]:
        preview = " ".join(self.code.split())
        if len(preview) > PREVIEW_CHARACTERS_MAX:
            preview = preview[:PREVIEW_CHARACTERS_MAX] + "..."
        return {
            "execution_profile": self.profile,
            "code_hash": hashlib.sha256(self.code.encode()).hexdigest()[:16],
            "code_preview": preview,
        }


def output_keys(final: Any) -> list[str] | None:
    if isinstance(final, dict):
        return [str(key) for key in final][:KEYS_MAX]
    return None
