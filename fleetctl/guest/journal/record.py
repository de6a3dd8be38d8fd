"""Writing a run's journal.

Called by whoever keeps the run; the task never writes here. The journal file is also a latch:
whoever creates it begins the run, and nobody can create it twice.
"""

from __future__ import annotations

import os
import time

from fleetctl.guest.task.finite import NAMES, named
from fleetctl.guest.task.text import compact

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


REMARKS_MAX = 20  # of one run; each becomes an event
REMARK_CHARACTERS_MAX = 1024
STEPS_KEPT = 200  # a node can be as many behind the others, and is seen to be


class Journal:
    """Append-only JSON lines; one write call a line, so that a reader sees whole lines or a torn
    last one.
    """

    def __init__(self, directory: int, run: str) -> None:
        """Raises FileExistsError when the run has begun before."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._handle = os.open(f"{run}.jsonl", flags, 0o600, dir_fd=directory)
        self._metrics = self._remarks = 0
        self.step = -1  # the highest that a metric had
        self.stepped: dict[int, float] = {}  # when each of the newest steps was first reported
        self._torn = b""

    def begin(self, at_s: float, identity: str) -> None:
        """identity: who keeps the run and how, as the inside of a JSON object."""
        self._write(f'{{"e":"started","at":{at_s!r},{identity}}}\n')

    def metric(self, step: Any, values: Any, at_s: Any) -> bool:
        """Record one report; False when it is none, or the disk refuses.

        `seq` counts values over the whole journal.
        """
        reported = numbers(values)
        if not reported or not isinstance(step, int):
            return False
        at_s = at_s if isinstance(at_s, float) else time.time()
        event = {"e": "metric", "seq": self._metrics, "step": step, "at": at_s, "values": reported}
        try:
            text = compact(event)
        except ValueError:
            text = compact({**event, "values": {name: named(it) for name, it in reported.items()}})
        try:
            self._write(text + "\n")
        except OSError:
            return False
        self._metrics += len(reported)
        self.step = max(self.step, step)
        if step not in self.stepped:
            self.stepped[step] = at_s
            if len(self.stepped) > STEPS_KEPT:
                del self.stepped[next(iter(self.stepped))]
        return True

    def remark(self, text: str) -> bool:
        """Record what its user should know while it runs; False when there are enough of them, or
        the disk refuses.
        """
        self._remarks += 1
        if self._remarks > REMARKS_MAX:
            return False
        event = {"e": "remark", "at": time.time(), "message": text[:REMARK_CHARACTERS_MAX]}
        try:
            self._write(compact(event) + "\n")
        except OSError:
            return False
        return True

    def nodes(self, nodes: Any) -> None:
        """Record how all nodes of the run stand, by rank: state, address, reason and exit code of
        each. What the disk refuses is said with the next change.
        """
        try:
            self._write(compact({"e": "nodes", "at": time.time(), "nodes": nodes}) + "\n")
        except OSError:
            return

    def note(self, kind: str, fields: dict[str, Any]) -> bool:
        """Record an event about checkpoints or GPUs; False when the disk refuses."""
        try:
            self._write(compact({"e": kind, "at": time.time(), **fields}) + "\n")
        except OSError:
            return False
        return True

    def end(self, result: str, ended: dict[str, Any], *, sandbox_open: bool) -> None:
        """The last words, in one write: the result (a JSON text, or "") and how the run ended.

        Raises OSError when the disk refuses; then it can be said again.
        """
        last = compact({"e": "ended", **ended})[:-1]
        self._write(f'{result}{last},"open":{"true" if sandbox_open else "false"}}}\n')
        os.close(self._handle)

    @property
    def reported(self) -> bool:
        """Whether any metric is recorded."""
        return self._metrics > 0

    def close(self) -> None:
        os.close(self._handle)

    def _write(self, text: str) -> None:
        """After a write that failed half-way, the torn line is ended first."""
        data = self._torn + text.encode()
        self._torn = b"\n"
        done = os.write(self._handle, data)
        while done < len(data):
            done += os.write(self._handle, data[done:])
        self._torn = b""


def write_unbegun(journal: Journal, identity: str, why: str) -> None:
    """The run ends here without its work ever having begun, through no fault of its own."""
    now = time.time()
    journal.begin(now, identity)
    ended = {"at": now, "started_at": now, "ok": False, "infra": True, "exit": None}
    journal.end("", {**ended, "reason": "SandboxClosed", "message": why}, sandbox_open=False)


def append(directory: int, run: str, event: dict[str, Any]) -> None:
    """Write one more line to the journal of a run that has ended."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(f"{run}.jsonl", flags, dir_fd=directory)
    try:
        os.write(handle, (compact(event) + "\n").encode())
    finally:
        os.close(handle)


def numbers(values: Any) -> dict[str, float]:
    """The values of a report when all of them are numbers, or names of what is none (`NaN`), else
    nothing.
    """
    if not isinstance(values, dict):
        return {}
    found = {}
    for name, value in values.items():
        if isinstance(value, bool) or not (isinstance(value, (int, float)) or value in NAMES):
            return {}
        try:
            found[name] = float(value)
        except OverflowError:
            return {}
    return found
