"""The records of a supervisor: a run, the sandbox in which runs execute one after another, the
channel to its worker, and the names of all runs that have begun.

A sandbox is a work directory and at most one process that leads it.
"""

from __future__ import annotations

import errno
import os
import socket
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from fleetctl.guest.journal.logfile import LogFile
from fleetctl.guest.journal.record import Journal
from fleetctl.guest.reports import ReportFiles, RunReports
from fleetctl.guest.supervision.services.process import ServiceRecords
from fleetctl.guest.task.text import encode_compact

from .gang import CONSEQUENCE

if TYPE_CHECKING:
    from fleetctl.guest.wandb.trial import Trial

    from .gang import LocalGang


CHANNEL_LINE_BYTES_MAX = 1024 * 1024  # a result of the largest size, escaped, with room to spare

BOOT = "boot "  # begins a line that names the boot under which the next runs began

HAND_OVER_S = 5.0  # for a worker that waits to read its next task


class GivenWork(NamedTuple):
    """A work directory for a sandbox. fresh: it is still to be made. used: the directory of an
    earlier task, with a source, that is to become it; given_ns: when that task got it, in time
    since the epoch.
    """

    path: str
    fresh: bool = True
    used: str = ""
    given_ns: int = 0


class SupervisedRun(RunReports):
    """An attempt that has begun and not ended."""

    def __init__(
        self,
        order: dict[str, Any],
        journal: Journal,
        log: LogFile,
        files: ReportFiles,
    ) -> None:
        super().__init__(journal, self.say, files)
        self.order = order
        self.name: str = order["run"]
        self.log = log
        self.output: Optional[int] = None  # where its stdout and stderr arrive
        self.started_at_s = time.time()
        self.ending = ""  # why we end it, when we do
        self.wandb: Optional[Trial] = None  # reads the reports of its program to wandb
        self.began_ns = 0  # by its file system's clock; 0: its work has not begun
        self.outputs: Optional[dict[str, Any]] = None  # a summary, once they are kept
        self.memory_used = 0  # when it was ended for it

    def keep_services(self, runs: int, log_bytes_max: int) -> None:
        """Opens the records of the run's services. runs: the open directory of journals and
        logs.
        """
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


class BeginLog:
    """The list of all runs that have begun, so durable that no power cut lets one begin twice.

    A journal is the latch while the machine is up, but it may be lost with the power: then this
    list, written before each batch of runs begins, proves that its runs have begun.
    """

    def __init__(self, path: str, boot: str) -> None:
        self._handle = os.open(
            path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        self._before: set[str] = set()
        under = ""
        for line in self._lines():
            if line.startswith(BOOT):
                under = line[len(BOOT) :]
            elif under != boot:
                self._before.add(line)
        self._unsaid = [] if under == boot else [BOOT + boot]

    def note(self, names: list[str]) -> None:
        """Returns when the names are on the disk. Raises OSError when the disk refuses."""
        lines = "".join(line + "\n" for line in (*self._unsaid, *names)).encode()
        whole = os.fstat(self._handle).st_size
        try:
            if os.write(self._handle, lines) < len(lines):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fdatasync(self._handle)
        except OSError:
            os.ftruncate(self._handle, whole)  # half a line would spoil the next one
            raise
        self._unsaid = []

    def was_before(self, run: str) -> bool:
        """Returns whether the run began before the machine was started the last time."""
        return run in self._before

    def _lines(self) -> list[str]:
        with os.fdopen(os.dup(self._handle), "rb") as file:
            return file.read().decode("utf-8", "replace").splitlines()


def open_channel() -> tuple[int, int]:
    """Two ends of a channel on which orders, with a descriptor each, can go to a worker."""
    ours, theirs = socket.socketpair()
    return ours.detach(), theirs.detach()


def hand_over(
    channel: int,
    order: dict[str, Any],
    output: int,
) -> None:
    """Another task for a worker that waits for one."""
    data = (encode_compact(order) + "\n").encode()
    with socket.socket(fileno=os.dup(channel)) as to_worker:
        to_worker.settimeout(HAND_OVER_S)
        sent = socket.send_fds(to_worker, [data], [output])
        if sent < len(data):
            to_worker.sendall(data[sent:])
    os.set_blocking(channel, False)
