"""Reads a run's journal: JSON lines that only grow, from any byte offset that fell on a line's end.

Used by every provider whose guest or keeper writes one. Pure; it opens nothing. Events: `started`,
`metric`, `result`, `ended`, `closed` (the sandbox that the run left open is closed). A guest
without Python writes `metrics` and a `result` that nobody has looked at; see rawevents.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from controllers.model import Metric
from fleetctl.providers.rawevents import raw_metrics, raw_result


@dataclass(frozen=True, slots=True)
class Ending:
    """The `ended` event."""

    at_s: float
    started_at_s: float | None
    ok: bool
    infrastructure: bool
    reason: str
    message: str
    exit_code: int | None
    sandbox_open: bool
    note: str


@dataclass(frozen=True, slots=True)
class Journal:
    """What a piece of a journal says. `offset` is where the next piece begins."""

    offset: int
    started_at_s: float | None = None
    keeper: str = ""  # who wrote it: a random name of one process's life
    note: str = ""
    metrics: tuple[Metric, ...] = ()
    result: str | None = None
    problem: str = ""  # with a result that cannot be kept
    ending: Ending | None = None
    garbage_lines: int = 0


def parse(data: bytes, offset: int = 0) -> Journal:
    """Read `data`, which begins at byte `offset`. A last line without its end is left for the next
    time.
    """
    whole = data.rfind(b"\n") + 1
    seen = Journal(offset=offset + whole)
    metrics: list[Metric] = []
    for line in data[:whole].splitlines():
        event = _event(line)
        taken = None if event is None else _take(seen, event, metrics)
        seen = replace(seen, garbage_lines=seen.garbage_lines + 1) if taken is None else taken
    return replace(seen, metrics=tuple(metrics))


def _event(line: bytes) -> Mapping[str, Any] | None:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None


def _take(seen: Journal, event: Mapping[str, Any], metrics: list[Metric]) -> Journal | None:
    """`seen` with one more event; None when the event makes no sense."""
    try:
        match event.get("e"):
            case "metric":
                metrics += _metrics(event)
                return seen
            case "metrics":
                metrics += raw_metrics(event)
                return seen
            case "started":
                at_s, keeper = float(event["at"]), str(event.get("keeper", ""))
                return replace(
                    seen, started_at_s=at_s, keeper=keeper, note=str(event.get("note", ""))
                )
            case "result" if "text" not in event:
                text, problem = raw_result(event)
                return replace(seen, result=text or None, problem=problem)
            case "result":
                return _with_result(seen, str(event["text"]), str(event["sha256"]))
            case "ended":
                return replace(seen, ending=_judged(_ending(event), seen.problem))
            case "closed" if seen.ending is not None:
                return replace(seen, ending=replace(seen.ending, sandbox_open=False))
            case _:
                return None
    except (KeyError, TypeError, ValueError):
        return None


def _metrics(event: Mapping[str, Any]) -> list[Metric]:
    """All values of one report; raises KeyError, TypeError or ValueError unless every one is a
    number.
    """
    first, step, at_s = int(event["seq"]), int(event["step"]), float(event["at"])
    values: Mapping[str, Any] = event["values"]
    return [
        Metric(seq=first + place, step=step, name=str(name), value=float(value), at_s=at_s)
        for place, (name, value) in enumerate(values.items())
    ]


def _with_result(seen: Journal, text: str, checksum: str) -> Journal | None:
    return replace(seen, result=text) if sha256(text.encode()).hexdigest() == checksum else None


def _judged(ending: Ending, problem: str) -> Ending:
    """A run whose result cannot be kept has failed, whatever its guest thought."""
    if not problem or not ending.ok:
        return ending
    return replace(ending, ok=False, reason="ResultInvalid", message=problem)


def _ending(event: Mapping[str, Any]) -> Ending:
    started, code = event.get("started_at"), event.get("exit")
    return Ending(
        at_s=float(event["at"]),
        started_at_s=None if started is None else float(started),
        ok=event["ok"] is True,
        infrastructure=event.get("infra") is True,
        reason=str(event["reason"]),
        message=str(event.get("message", "")),
        exit_code=None if code is None else int(code),
        sandbox_open=event.get("open") is True,
        note=str(event.get("note", "")),
    )
