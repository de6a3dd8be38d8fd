"""The records of one supervisor: a run, and the sandbox in which runs execute one after another.

A sandbox is a work directory and at most one process that leads it. Filled by supervise.py; decides
nothing but how an ended run is called.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Callable, Optional, Protocol

from fleetctl.guest.journal.logfile import LogFile
from fleetctl.guest.journal.metriclines import MetricLines
from fleetctl.guest.journal.record import Journal
from fleetctl.guest.supervision.services.keeping import ServiceRecords

from ..gang.gang import CONSEQUENCE

if TYPE_CHECKING:
    from fleetctl.guest.checkpoints.watch import Watch
    from fleetctl.guest.supervision.pace import Pace
    from fleetctl.guest.wandb.trial import Trial

    from ..gang.gang import Gang

    class Follower(Protocol):
        """Reads what a run tells of its metrics; see followers.py."""

        def take(self, journal: Journal, *, whole: bool = False) -> bool: ...
        def conclude(self, line: str, ended: dict[str, Any], journal: Journal) -> str: ...


CHANNEL_LINE_BYTES_MAX = 1024 * 1024  # a result of the largest size, escaped, with room to spare


class Run:
    """One attempt that has begun and not ended."""

    def __init__(self, order: dict[str, Any], journal: Journal, log: LogFile) -> None:
        self.order = order
        self.name: str = order["run"]
        self.journal = journal
        self.log = log
        self.output: Optional[int] = None  # where its stdout and stderr arrive
        self.started_at_s = time.time()
        self.has_result = False
        self.result: Any = None  # as the task handed it in; judged at its end
        self.error: Optional[dict[str, str]] = None
        self.ending = ""  # why we end it, when we do
        self.exit_code: Optional[int] = None  # told by a worker that lives on
        self.metrics = MetricLines()
        self.wandb: Optional[Trial] = None  # what its program tells wandb
        self.checkpoints: Optional[Watch] = None  # what looks for them
        self.pace: Optional[Pace] = None  # whether it gets on
        self.heard = 0  # bytes of its output
        self.followers: list[Follower] = []  # that one, and what reads other metrics of it
        self.hear: Optional[Callable[[bytes], None]] = None  # its output, as it comes
        self.services: Optional[ServiceRecords] = None  # what they write and how they stand
        self.remarks: list[str] = []  # what its user should know although it may succeed
        self.memory_used = 0  # when it was ended for it

    def keep_services(self, runs: int, log_bytes_max: int) -> None:
        """runs: the open directory of journals and logs."""
        names = [it["name"] for it in self.order.get("services") or ()]
        if names:
            self.services = ServiceRecords(names, runs, self.name, log_bytes_max)

    def close_logs(self) -> None:
        """They are whole."""
        self.log.close()
        if self.services is not None:
            self.services.close()

    def say(self, text: str) -> None:
        """A word of ours to the person who reads the log."""
        self.log.write(f"fleetctl: {text}\n".encode("utf-8", "backslashreplace"))


class Sandbox:
    def __init__(self, name: str, mark: int) -> None:
        self.name = name
        self.owner = ""  # the store that it belongs to
        self.first: dict[str, Any] = {}  # the order that it was made for, as far as it names it
        self.work = ""
        self.mark = mark
        self.created_at_s = time.time()
        self.fresh = True  # the work directory is still to be made
        self.serves = False  # its process takes one task after another, and says when each is done
        self.clean = True  # nothing failed in it, so its files are not kept
        self.pid: Optional[int] = None
        self.status: Optional[int] = None  # wait status of a process that ended
        self.channel: Optional[int] = None  # on which its process talks
        self.heard = False  # the channel is registered
        self.received = b""
        self.run: Optional[Run] = None
        self.last = ""  # the newest run in it, also after that run ended
        self.closing = False
        self.told_open = False  # the end record of its last run says that it is open
        self.kill_at_s = 0.0  # monotonic; 0 = nobody asked it to end
        self.gang: Optional[Gang[Sandbox]] = None  # that it is one of, where there are several
        self.rank = 0
        self.ended_at_s = 0.0  # when its process was found ended

    def end_for(self, why: str) -> None:
        """Its run is being ended for that; the first reason stays. A process that has ended, and
        waits for what it left, was not ended for another node's sake.
        """
        by_itself = why == CONSEQUENCE and self.status is not None
        if self.run is not None and not by_itself:
            self.run.ending = self.run.ending or why
