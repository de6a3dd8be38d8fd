"""Reads a run's journal: JSON lines that only grow, from any byte offset that fell on a line; the
events of a guest without Python are judged here.

Events: `started`, `metric`, `remark`, `checkpoint`, `resumed`, `aside`, `left`, `services`,
`result`, `ended`, `closed` (the sandbox that the run left open is closed). A guest without Python
writes unread `metrics` and an unread `result`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import islice
from typing import Any

from fleetctl.controllers.model import (
    NO_CHECKPOINTS,
    CheckpointReport,
    GpuUsage,
    Metric,
    Node,
    SavedCheckpoint,
)
from fleetctl.guest.journal.results import format_problems, judge_result, parse_result, read_line

SYSTEM = "system/"  # begins the names of samples of the machine
SAMPLES_MAX = 64  # of one moment
SAMPLES_BEGIN = -(1 << 62)  # their numbers are far below 0, for thousands of years
RAW_METRICS = b'{"e":"metrics"'  # begins a line in which a guest hands on metrics as they were

_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class RunEnding:
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
    outputs: int = 0  # how many files of it are kept


@dataclass(frozen=True, slots=True)
class RunJournal:
    """The content of a piece of a journal. `offset` is where the next piece begins."""

    offset: int
    started_at_s: float | None = None
    supervisor: str = ""  # its writer: a random name of a process's life
    note: str = ""
    mark: str = ""  # of the work that began, as orphans.work_mark returns it
    gpus: tuple[str, ...] = ()  # of its sandbox, by their driver's names, where somebody asked it
    nodes: tuple[Node, ...] = ()  # the last report about each node
    services: Mapping[str, str] = field(default_factory=dict)  # states, as last reported
    usage: GpuUsage | None = None  # of its GPUs, the newest sample
    stragglers: tuple[str, ...] = ()
    metrics: tuple[Metric, ...] = ()
    samples: tuple[Metric, ...] = ()  # of its machine
    remarks: tuple[str, ...] = ()
    checkpoints: CheckpointReport = NO_CHECKPOINTS
    result: str | None = None
    problem: str = ""  # with a result that cannot be kept
    ending: RunEnding | None = None
    garbage_lines: int = 0
    raw: bool = False  # only the whole journal shows what its end means
    more: bool = False  # whole lines stand behind this piece; then it has no end yet

    @property
    def tells(self) -> bool:
        """Returns whether something in it must not be lost with the run."""
        return self.more or bool(self.metrics or self.remarks or self.checkpoints.saved)


@dataclass(slots=True)
class _JournalState:
    """The content of the lines so far. A mutable object: each run's journal is read several
    times.
    """

    started_at_s: float | None = None
    supervisor: str = ""
    note: str = ""
    mark: str = ""
    gpus: tuple[str, ...] = ()
    nodes: tuple[Node, ...] = ()
    services: dict[str, str] = field(default_factory=dict)
    metrics: list[Metric] = field(default_factory=list)
    samples: list[Metric] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    saved: list[SavedCheckpoint] = field(default_factory=list)
    resumed: int | None = None
    aside: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    unmirrored: list[str] = field(default_factory=list)
    stragglers: list[str] = field(default_factory=list)
    usage: GpuUsage | None = None
    result: str | None = None
    problem: str = ""
    ending: RunEnding | None = None
    garbage_lines: int = 0
    raw: bool = False  # it holds what a guest handed on as it was
    changed: str = ""  # in such a result
    wrong: list[str] = field(default_factory=list)  # with lines of metrics


def parse_journal(data: bytes, offset: int = 0) -> RunJournal:
    """Read `data`, which begins at byte `offset`. A last line without its end is left for the next
    time.
    """
    whole = data.rfind(b"\n") + 1
    read = _JournalState()
    for line in data[:whole].splitlines():
        event = _parse_event(line)
        if event is None or not _apply_event(read, event):
            read.garbage_lines += 1
    return RunJournal(
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
        samples=tuple(read.samples),
        remarks=tuple(read.remarks),
        checkpoints=_build_checkpoints(read),
        result=read.result,
        problem=read.problem,
        ending=read.ending,
        garbage_lines=read.garbage_lines,
        raw=read.raw,
    )


def parse_complete(data: bytes) -> RunJournal:
    """Reads a journal from its first byte to its last, with the facts that only all of its lines
    show.
    """
    return with_raw_remark(parse_journal(data), data.splitlines())


def with_raw_remark(seen: RunJournal, lines: Iterable[bytes]) -> RunJournal:
    """Adds to a successful end the problems of metrics that a guest passed on unread.

    lines: all lines of the journal; read only if needed.
    """
    if seen.ending is None or not seen.ending.ok:
        return seen
    message = _raw_remark(lines)
    if not message:
        return seen
    said = "; ".join(filter(None, (seen.ending.message, message)))
    return replace(seen, ending=replace(seen.ending, message=said))


def _raw_remark(lines: Iterable[bytes]) -> str:
    count = 0
    first = ""
    for line in lines:
        read = _JournalState()
        event = _parse_event(line) if line.startswith(RAW_METRICS) else None
        if event is not None and _apply_event(read, event) and read.wrong:
            count = count + len(read.wrong)
            first = first or read.wrong[0]
    if count:
        return format_problems(count, first)
    return ""


def _parse_event(line: bytes) -> Mapping[str, Any] | None:
    """Returns None for garbage."""
    try:
        text = line.decode()
        # Half of the time of `json.loads`, which looks for encodings and spaces, too.
        event, end = _DECODER.raw_decode(text)
        if end != len(text):
            event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if isinstance(event, dict):
        return event
    return None


def _apply_event(read: _JournalState, event: Mapping[str, Any]) -> bool:
    """Notes one more event whole, or returns False for an invalid one."""
    try:
        match event.get("e"):
            case "metric":
                read.metrics += _parse_metrics(event)
            case "metrics":
                found, wrong = raw_metrics(event)
                read.metrics += found
                read.wrong += wrong
                read.raw = True
            case "remark":
                read.remarks.append(str(event["message"]))
            case "nodes":
                read.nodes = tuple(map(_parse_node, event["nodes"]))
            case "checkpoint":
                read.saved.append(_parse_saved(event))
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
                read.usage = _parse_usage(event)
                read.samples += _gpu_samples(event)
            case "load":
                read.samples += _load_samples(event)
            case "started":
                at_s = float(event["at"])
                supervisor = str(event.get("keeper", ""))
                read.started_at_s = at_s
                read.supervisor = supervisor
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
                read.ending = _judge_ending(_parse_ending(event), read)
            case "closed" if read.ending is not None:
                read.ending = replace(read.ending, sandbox_open=False)
            case _:
                return False
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, ZeroDivisionError):
        return False
    return True


def _parse_node(entry: Mapping[str, Any]) -> Node:
    """Returns the node of an entry. Raises KeyError, TypeError or ValueError."""
    code = entry.get("exit")
    address = str(entry.get("address", ""))
    reason = str(entry.get("reason", ""))
    return Node(str(entry["state"]), address, reason, None if code is None else int(code))


def _parse_usage(event: Mapping[str, Any]) -> GpuUsage:
    """Returns the usage of GPUs in an event. Raises IndexError, KeyError, TypeError, ValueError or
    ZeroDivisionError.
    """
    devices = event["gpus"]
    speed = event.get("steps_per_s")
    return GpuUsage(
        gpus=len(devices),
        percent=sum(float(one[1]) for one in devices) / len(devices),
        memory_mib=sum(int(one[2]) for one in devices),
        memory_total_mib=sum(int(one[3]) for one in devices),
        steps_per_s=None if speed is None else float(speed),
    )


def _gpu_samples(event: Mapping[str, Any]) -> list[Metric]:
    values = {}
    for index, percent, used_mib, _ in event["gpus"]:
        values[f"{SYSTEM}gpu.{int(index)}.percent"] = float(percent)
        values[f"{SYSTEM}gpu.{int(index)}.memory_mib"] = float(used_mib)
    return _build_samples(event, values, 0)


def _load_samples(event: Mapping[str, Any]) -> list[Metric]:
    values = {
        f"{SYSTEM}cpu.percent": float(event["cpu"]),
        f"{SYSTEM}memory_mib": float(event["memory_mib"]),
    }
    return _build_samples(event, values, SAMPLES_MAX - len(values))


def _build_samples(
    event: Mapping[str, Any],
    values: Mapping[str, float],
    first: int,
) -> list[Metric]:
    """Returns samples of the machine. Their numbers ascend with time, and are below 0: apart from
    those of what the program reported. first: the number of the first one within its millisecond.
    """
    at_s = float(event["at"])
    number = SAMPLES_BEGIN + int(at_s * 1000) * SAMPLES_MAX + first
    return [
        Metric(number + place, int(at_s), name, value, at_s)
        for place, (name, value) in enumerate(islice(values.items(), SAMPLES_MAX - first))
    ]


def _parse_saved(event: Mapping[str, Any]) -> SavedCheckpoint:
    return SavedCheckpoint(
        step=int(event["step"]),
        path=str(event["path"]),
        at_s=float(event["at"]),
        size=int(event["bytes"]),
        took_s=float(event.get("took_s", 0.0)),
    )


def _build_checkpoints(read: _JournalState) -> CheckpointReport:
    found = CheckpointReport(
        tuple(read.saved),
        read.resumed,
        tuple(read.aside),
        tuple(read.unmirrored),
        tuple(read.left),
    )
    if found == NO_CHECKPOINTS:
        return NO_CHECKPOINTS
    return found


def _parse_metrics(event: Mapping[str, Any]) -> list[Metric]:
    """Returns all values of a report; raises KeyError, TypeError or ValueError unless every one is
    a number.
    """
    first = int(event["seq"])
    step = int(event["step"])
    at_s = float(event["at"])
    values: Mapping[str, Any] = event["values"]
    return [
        Metric(first + place, step, name, float(value), at_s)
        for place, (name, value) in enumerate(values.items())
    ]


def _judge_ending(ending: RunEnding, read: _JournalState) -> RunEnding:
    """Returns an ending from a guest that cannot read JSON, with a remark about its files.

    A run whose result cannot be kept has failed, whatever the guest thought. For its metrics see
    `with_raw_remark`.
    """
    if not read.raw or not ending.ok:
        return ending
    if read.problem:
        return replace(
            ending,
            ok=False,
            reason="ResultInvalid",
            message=read.problem,
        )
    return replace(ending, message="; ".join(filter(None, (ending.message, read.changed))))


def _parse_ending(event: Mapping[str, Any]) -> RunEnding:
    started = event.get("started_at")
    code = event.get("exit")
    return RunEnding(
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
        outputs=int(event.get("outputs", 0)),
    )


def raw_metrics(event: Mapping[str, Any]) -> tuple[list[Metric], list[str]]:
    """Returns (the metrics in some lines of a task's $FLEETCTL_METRICS, the problems of other
    lines).

    `seq` grows with the offset of a line, since a line has more bytes than values.
    """
    offset = int(event["offset"])
    at_s = float(event["at"])
    number = int(event.get("line", 0))
    found = []
    wrong = []
    step = number - 1
    for line in _decode_bytes(event).removesuffix(b"\n").split(b"\n"):
        line_step, values, problem = read_line(line, number, max(number, step + 1))
        step = line_step if values else step
        wrong += [problem] if problem else []
        found += [
            Metric(
                seq=offset + place,
                step=line_step,
                name=name,
                value=value,
                at_s=at_s,
            )
            for place, (name, value) in enumerate(values.items())
        ]
        offset = offset + len(line) + 1
        number = number + 1
    return found, wrong


def raw_result(event: Mapping[str, Any]) -> tuple[str, str, str]:
    """Returns (the result as canonical JSON, "", changes made to it) or ("", the problem, "")."""
    value, problem = parse_result(_decode_bytes(event))
    if not problem:
        return judge_result(value)
    return ("", problem, "")


def _decode_bytes(event: Mapping[str, Any]) -> bytes:
    """Returns the content of an event. Raises KeyError or ValueError."""
    if "b64" in event:
        return base64.b64decode(event["b64"], validate=True)
    return bytes.fromhex(event["hex"])
