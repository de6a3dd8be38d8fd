"""Writes a run's journal.

Called by the run's supervisor; the task never writes here. The journal file is also a latch: the
process that creates it begins the run, and it cannot be created twice.
"""

from __future__ import annotations

import os
import time

from fleetctl.guest.journal.masking import Masking
from fleetctl.guest.task.plain import NAMES, encode_number
from fleetctl.guest.task.text import encode_compact

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

REMARKS_MAX = 20  # of a run; each becomes an event
REMARK_CHARACTERS_MAX = 1024
STEPS_KEPT = 200  # a node can be this far behind the others and is still noticed


def masking_of(order: dict[str, Any], secrets: dict[str, str]) -> Optional[Masking]:
    """Returns the masking of the values that the order names as `masked`; None without any."""
    values = [secrets[name] for name in order.get("masked") or () if name in secrets]
    if values:
        return Masking(values)
    return None


class Journal:
    """Append-only JSON lines; one write call a line, so that a reader sees whole lines or a torn
    last one.
    """

    def __init__(
        self,
        directory: int,
        run: str,
        masking: Optional[Masking] = None,
    ) -> None:
        """masking: removes values of secrets before any write. Raises FileExistsError when the
        run has begun before.
        """
        self.masking = masking
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._handle = os.open(f"{run}.jsonl", flags, 0o600, dir_fd=directory)
        self._metrics = self._remarks = 0
        self.step = -1  # the highest step of a metric
        self.stepped: dict[int, float] = {}  # when each of the newest steps was first reported
        self._torn = b""

    def begin(self, at_s: float, identity: str) -> None:
        """Writes line 1. identity: the supervisor and its host, as the inside of a JSON object."""
        self._write(f'{{"e":"started","at":{at_s!r},{identity}}}\n')

    def metric(
        self,
        step: Any,
        values: Any,
        at_s: Any,
    ) -> bool:
        """Records one report; False when it is invalid, or the disk refuses.

        `seq` counts values over the whole journal.
        """
        reported = pick_numbers(values)
        if not reported or not isinstance(step, int):
            return False
        at_s = at_s if isinstance(at_s, float) else time.time()
        event = {"e": "metric", "seq": self._metrics, "step": step, "at": at_s, "values": reported}
        try:
            text = encode_compact(event)
        except ValueError:
            text = encode_compact(
                {**event, "values": {name: encode_number(it) for name, it in reported.items()}}
            )
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
        """Records a remark for the user of the running run; False when there are enough, or the
        disk refuses.
        """
        self._remarks += 1
        if self._remarks > REMARKS_MAX:
            return False
        event = {"e": "remark", "at": time.time(), "message": text[:REMARK_CHARACTERS_MAX]}
        try:
            self._write(encode_compact(event) + "\n")
        except OSError:
            return False
        return True

    def nodes(self, nodes: Any) -> None:
        """Records the state, address, reason and exit code of each node, by rank. A refusal of the
        disk is made up for by the next change.
        """
        try:
            self._write(encode_compact({"e": "nodes", "at": time.time(), "nodes": nodes}) + "\n")
        except OSError:
            return

    def note(self, kind: str, fields: dict[str, Any]) -> bool:
        """Records an event about checkpoints or GPUs; False when the disk refuses."""
        try:
            self._write(encode_compact({"e": kind, "at": time.time(), **fields}) + "\n")
        except OSError:
            return False
        return True

    def end(
        self,
        result: str,
        ended: dict[str, Any],
        *,
        sandbox_open: bool,
    ) -> None:
        """Writes the result (a JSON text, or "") and the end of the run in one write.

        Raises OSError when the disk refuses; then the call may be repeated.
        """
        last = encode_compact({"e": "ended", **ended})[:-1]
        self._write(f'{result}{last},"open":{"true" if sandbox_open else "false"}}}\n')
        os.close(self._handle)

    @property
    def reported(self) -> bool:
        """Returns whether any metric is recorded."""
        return self._metrics > 0

    def close(self) -> None:
        os.close(self._handle)

    def _write(self, text: str) -> None:
        """Writes a line; after a write that failed half-way, ends the torn line first."""
        if self.masking is not None:
            text = self.masking.lines(text)
        data = self._torn + text.encode()
        self._torn = b"\n"
        done = os.write(self._handle, data)
        while done < len(data):
            done += os.write(self._handle, data[done:])
        self._torn = b""


def write_unbegun(
    journal: Journal,
    identity: str,
    why: str,
) -> None:
    """Ends the run here although its work never began, through no fault of its own."""
    now = time.time()
    journal.begin(now, identity)
    ended = {"at": now, "started_at": now, "ok": False, "infra": True, "exit": None}
    journal.end("", {**ended, "reason": "SandboxClosed", "message": why}, sandbox_open=False)


def append_event(
    directory: int,
    run: str,
    event: dict[str, Any],
) -> None:
    """Writes one more line to the journal of a run that has ended."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(f"{run}.jsonl", flags, dir_fd=directory)
    try:
        os.write(handle, (encode_compact(event) + "\n").encode())
    finally:
        os.close(handle)


def pick_numbers(values: Any) -> dict[str, float]:
    """Returns the values of a report when all are numbers, or names of non-finite ones (`NaN`),
    else {}.
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
