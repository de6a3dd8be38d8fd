"""Reads a run's journal: JSON lines that only grow, from any byte offset that fell on a line's end.

Used by every provider whose guest or supervisor writes one. Pure; it opens nothing. Events:
`started`, `metric`, `remark`, `checkpoint`, `resumed`, `aside`, `left`, `services`, `result`,
`ended`, `closed` (the sandbox that the run left open is closed). A guest without Python writes
`metrics` and a `result` that nobody has looked at; see raw_events.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

from fleetctl.controllers.model import NO_CHECKPOINTS, Checkpoints, Metric, Node, Saved, Usage
from fleetctl.guest.journal.metriclines import remark
from fleetctl.providers.rundir.raw_events import raw_metrics, raw_result

RAW_METRICS = b'{"e":"metrics"'  # begins a line in which a guest hands on metrics as they were


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
    kept: str = ""  # where the run began, below the work directories, when its files stay
    node: int = 0  # whose end it is, of several


@dataclass(frozen=True, slots=True)
class Journal:
    """What a piece of a journal says. `offset` is where the next piece begins."""

    offset: int
    started_at_s: float | None = None
    supervisor: str = ""  # who wrote it: a random name of one process's life
    note: str = ""
    mark: str = ""  # of the work that began, as orphans.work_mark tells it
    gpus: tuple[str, ...] = ()  # of its sandbox, by their driver's names, where somebody asked it
    nodes: tuple[Node, ...] = ()  # the last that is told of them
    services: Mapping[str, str] = field(default_factory=dict)  # states, as last told
    usage: Usage | None = None  # of its GPUs, the newest sample
    stragglers: tuple[str, ...] = ()
    metrics: tuple[Metric, ...] = ()
    remarks: tuple[str, ...] = ()
    checkpoints: Checkpoints = NO_CHECKPOINTS
    result: str | None = None
    problem: str = ""  # with a result that cannot be kept
    ending: Ending | None = None
    garbage_lines: int = 0
    raw: bool = False  # what its end means, only all of the journal can tell
    more: bool = False  # whole lines stand behind this piece; then it has no end yet

    @property
    def tells(self) -> bool:
        """Whether something in it must not be lost with the run."""
        return self.more or bool(self.metrics or self.remarks or self.checkpoints.saved)


@dataclass(slots=True)
class _Read:
    """What the lines so far say. Changed in place: each run's journal is read several times."""

    started_at_s: float | None = None
    supervisor: str = ""
    note: str = ""
    mark: str = ""
    gpus: tuple[str, ...] = ()
    nodes: tuple[Node, ...] = ()
    services: dict[str, str] = field(default_factory=dict)
    metrics: list[Metric] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    saved: list[Saved] = field(default_factory=list)
    resumed: int | None = None
    aside: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    unmirrored: list[str] = field(default_factory=list)
    stragglers: list[str] = field(default_factory=list)
    usage: Usage | None = None
    result: str | None = None
    problem: str = ""
    ending: Ending | None = None
    garbage_lines: int = 0
    raw: bool = False  # it holds what a guest handed on as it was
    changed: str = ""  # in such a result
    wrong: list[str] = field(default_factory=list)  # with lines of metrics


def parse(data: bytes, offset: int = 0) -> Journal:
    """Read `data`, which begins at byte `offset`. A last line without its end is left for the next
    time.
    """
    whole = data.rfind(b"\n") + 1
    read = _Read()
    for line in data[:whole].splitlines():
        event = _event(line)
        if event is None or not _take(read, event):
            read.garbage_lines += 1
    return Journal(
        offset=offset + whole,
        started_at_s=read.started_at_s,
        supervisor=read.supervisor,
        note=read.note,
        mark=read.mark,
        gpus=read.gpus,
        nodes=read.nodes,
        services=read.services,
        usage=read.usage,
        stragglers=tuple(read.stragglers),
        metrics=tuple(read.metrics),
        remarks=tuple(read.remarks),
        checkpoints=_checkpoints(read),
        result=read.result,
        problem=read.problem,
        ending=read.ending,
        garbage_lines=read.garbage_lines,
        raw=read.raw,
    )


def parse_whole(data: bytes) -> Journal:
    """Read a journal from its first byte to its last, with what only all of its lines tell."""
    return with_raw_remark(parse(data), data.splitlines())


def with_raw_remark(seen: Journal, lines: Iterable[bytes]) -> Journal:
    """Add to a good end what is wrong with metrics that a guest handed on as they were.

    lines: all of the journal; not read where they do not matter.
    """
    if seen.ending is None or not seen.ending.ok:
        return seen
    message = _raw_remark(lines)
    if not message:
        return seen
    said = "; ".join(filter(None, (seen.ending.message, message)))
    return replace(seen, ending=replace(seen.ending, message=said))


def _raw_remark(lines: Iterable[bytes]) -> str:
    count, first = 0, ""
    for line in lines:
        read = _Read()
        event = _event(line) if line.startswith(RAW_METRICS) else None
        if event is not None and _take(read, event) and read.wrong:
            count, first = count + len(read.wrong), first or read.wrong[0]
    return remark(count, first) if count else ""


def _event(line: bytes) -> Mapping[str, Any] | None:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None


def _take(read: _Read, event: Mapping[str, Any]) -> bool:
    """Note one more event whole, or not at all and say so: then it makes no sense."""
    try:
        match event.get("e"):
            case "metric":
                read.metrics += _metrics(event)
            case "metrics":
                found, wrong = raw_metrics(event)
                read.metrics += found
                read.wrong += wrong
                read.raw = True
            case "remark":
                read.remarks.append(str(event["message"]))
            case "nodes":
                read.nodes = tuple(map(_node, event["nodes"]))
            case "checkpoint":
                read.saved.append(_saved(event))
            case "resumed":
                read.resumed = int(event["step"])
            case "aside":
                read.aside.append(str(event["message"]))
            case "left":
                read.left.append(str(event["message"]))
            case "unmirrored":
                read.unmirrored.append(str(event["message"]))
            case "services":
                read.services = {str(k): str(it) for k, it in event["services"].items()}
            case "straggler":
                read.stragglers.append(str(event["message"]))
            case "usage":
                read.usage = _usage(event)
            case "started":
                at_s, supervisor = float(event["at"]), str(event.get("keeper", ""))
                read.started_at_s, read.supervisor = at_s, supervisor
                read.note, read.mark = str(event.get("note", "")), str(event.get("mark", ""))
                read.gpus = tuple(map(str, event.get("gpus", ())))
            case "result" if "text" not in event:
                text, read.problem, read.changed = raw_result(event)
                read.result = text or None
                read.raw = True
            case "result":
                text = str(event["text"])
                if sha256(text.encode()).hexdigest() != str(event["sha256"]):
                    return False
                read.result = text
            case "ended":
                read.ending = _judged(_ending(event), read)
            case "closed" if read.ending is not None:
                read.ending = replace(read.ending, sandbox_open=False)
            case _:
                return False
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, ZeroDivisionError):
        return False
    return True


def _node(entry: Mapping[str, Any]) -> Node:
    """Raises KeyError, TypeError or ValueError."""
    code = entry.get("exit")
    address, reason = str(entry.get("address", "")), str(entry.get("reason", ""))
    return Node(str(entry["state"]), address, reason, None if code is None else int(code))


def _usage(event: Mapping[str, Any]) -> Usage:
    """Raises IndexError, KeyError, TypeError, ValueError or ZeroDivisionError."""
    devices, speed = event["gpus"], event.get("steps_per_s")
    return Usage(
        gpus=len(devices),
        percent=sum(float(one[1]) for one in devices) / len(devices),
        memory_mib=sum(int(one[2]) for one in devices),
        memory_total_mib=sum(int(one[3]) for one in devices),
        steps_per_s=None if speed is None else float(speed),
    )


def _saved(event: Mapping[str, Any]) -> Saved:
    return Saved(
        step=int(event["step"]),
        path=str(event["path"]),
        at_s=float(event["at"]),
        size=int(event["bytes"]),
        took_s=float(event.get("took_s", 0.0)),
    )


def _checkpoints(read: _Read) -> Checkpoints:
    found = Checkpoints(
        tuple(read.saved),
        read.resumed,
        tuple(read.aside),
        tuple(read.unmirrored),
        tuple(read.left),
    )
    return NO_CHECKPOINTS if found == NO_CHECKPOINTS else found


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


def _judged(ending: Ending, read: _Read) -> Ending:
    """What a guest that cannot read JSON says of an end, with what there is to say of its files.

    A run whose result cannot be kept has failed, whatever the guest thought. Of its metrics see
    `with_raw_remark`.
    """
    if not read.raw or not ending.ok:
        return ending
    if read.problem:
        return replace(ending, ok=False, reason="ResultInvalid", message=read.problem)
    return replace(ending, message="; ".join(filter(None, (ending.message, read.changed))))


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
        kept=str(event.get("kept", "")),
        node=int(event.get("node", 0)),
    )
