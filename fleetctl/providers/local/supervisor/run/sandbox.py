"""The records of a supervisor: a run, and the sandbox in which runs execute one after another.

A sandbox is a work directory and at most one process that leads it. Filled by supervise.py; decides
only how an ended run is called.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Optional, Protocol

from fleetctl.guest.journal.logfile import LogFile
from fleetctl.guest.journal.metriclines import MetricLines
from fleetctl.guest.journal.record import Journal
from fleetctl.guest.supervision.services.keeping import ServiceRecords

from ..gang.gang import CONSEQUENCE

if TYPE_CHECKING:
    from fleetctl.guest.checkpoints.watch import Watch
    from fleetctl.guest.supervision.pace import Pace
    from fleetctl.guest.wandb.trial import Trial

    from ..gang.gang import LocalGang

    class Follower(Protocol):
        """Reads a run's reports of its metrics; see followers.py."""

        def take(self, journal: Journal, *, whole: bool = False) -> bool: ...
        def conclude(
            self,
            line: str,
            ended: dict[str, Any],
            journal: Journal,
        ) -> str: ...


CHANNEL_LINE_BYTES_MAX = 1024 * 1024  # a result of the largest size, escaped, with room to spare


class GivenWork(NamedTuple):
    """A work directory for a sandbox. fresh: it is still to be made. used: the directory of an
    earlier task, with a source, that is to become it; given_ns: when that task got it, in time
    since the epoch.
    """

    path: str
    fresh: bool = True
    used: str = ""
    given_ns: int = 0


class SupervisedRun:
    """An attempt that has begun and not ended."""

    def __init__(
        self,
        order: dict[str, Any],
        journal: Journal,
        log: LogFile,
    ) -> None:
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
        self.exit_code: Optional[int] = None  # sent by a worker that lives on
        self.metrics = MetricLines()
        self.wandb: Optional[Trial] = None  # reads the reports of its program to wandb
        self.checkpoints: Optional[Watch] = None  # looks for its checkpoints
        self.pace: Optional[Pace] = None  # whether it gets on
        self.heard = 0  # bytes of its output
        self.followers: list[Follower] = []  # that one, and the readers of its other metrics
        self.hear: Optional[Callable[[bytes], None]] = None  # its output, as it comes
        self.services: Optional[ServiceRecords] = None  # their output and states
        self.began_ns = 0  # by its file system's clock; 0: its work has not begun
        self.outputs: Optional[dict[str, Any]] = None  # a summary, once they are kept
        self.remarks: list[str] = []  # notes for its user although it may succeed
        self.memory_used = 0  # when it was ended for it

    def keep_services(self, runs: int, log_bytes_max: int) -> None:
        """runs: the open directory of journals and logs."""
        names = [it["name"] for it in self.order.get("services") or ()]
        if names:
            self.services = ServiceRecords(
                names,
                runs,
                self.name,
                log_bytes_max,
                self.journal.masking,
            )

    def close_logs(self) -> None:
        """They are whole."""
        self.log.close()
        if self.services is not None:
            self.services.close()

    def say(self, text: str) -> None:
        """Writes a line of ours to the log, for its reader."""
        self.log.write(f"fleetctl: {text}\n".encode("utf-8", "backslashreplace"))


class RunSandbox:
    def __init__(self, name: str, mark: int) -> None:
        self.name = name
        self.owner = ""  # the store that it belongs to
        self.first: dict[str, Any] = {}  # the order that it was made for, as far as it names it
        self.work = ""
        self.mark = mark
        self.created_at_s = time.time()
        self.fresh = True  # the work directory is still to be made
        self.given: Optional[GivenWork] = None  # by the janitor
        # its process takes one task after another, and reports when each is done
        self.serves = False
        self.clean = True  # no run in it failed, so its files are not kept
        self.pid: Optional[int] = None
        self.status: Optional[int] = None  # wait status of a process that ended
        self.channel: Optional[int] = None  # on which its process talks
        self.heard = False  # the channel is registered
        self.received = b""
        self.run: Optional[SupervisedRun] = None
        self.last = ""  # the newest run in it, also after that run ended
        self.closing = False
        self.told_open = False  # the end record of its last run declares it open
        self.kill_at_s = 0.0  # monotonic; 0 = its end was not requested
        self.gang: Optional[LocalGang[RunSandbox]] = (
            None  # that it is one of, where there are several
        )
        self.rank = 0
        self.ended_at_s = 0.0  # when its process was found ended

    def end_for(self, why: str) -> None:
        """Notes why its run is being ended; the first reason stays. A process that has ended, and
        waits for what it left, was not ended for another node's sake.
        """
        by_itself = why == CONSEQUENCE and self.status is not None
        if self.run is not None and not by_itself:
            self.run.ending = self.run.ending or why
