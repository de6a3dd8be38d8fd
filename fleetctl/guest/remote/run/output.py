"""Writes the output of a run to its log, and reads a living run's reports, in files and in its
output, and whether it makes progress.

Features that a run does not use are never imported.
"""

from __future__ import annotations

import os
import time

from fleetctl.guest.remote.place import start_directory

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, Callable, Iterable, Optional, Protocol

    from fleetctl.guest.checkpoints.watch import Watch
    from fleetctl.guest.journal.logfile import LogFile
    from fleetctl.guest.journal.record import Journal
    from fleetctl.guest.journal.results import MetricLines
    from fleetctl.guest.remote.loop import Loop
    from fleetctl.guest.supervision.pace import Pace

    class Follower(Protocol):
        """Reads the program's metrics; see files.py."""

        def take(self, journal: Journal, *, whole: bool = False) -> bool: ...
        def conclude(
            self,
            line: str,
            ended: dict[str, Any],
            journal: Journal,
        ) -> str: ...


READ_BYTES_MAX = 1024 * 1024
DRAIN_READS_MAX = 256  # a process of an open sandbox may go on writing for ever
LAST_WORDS_BYTES = 1024


class Output:
    def __init__(
        self,
        log: LogFile,
        loop: Loop,
        *,
        tell: Callable[[], None],
    ) -> None:
        """tell: called when there is more in the log."""
        self.hears: Optional[Callable[[bytes], None]] = None  # a follower of the output
        self._log = log
        self._loop = loop
        self._tell = tell
        self._tail = b""
        self._readable, self.writable = os.pipe()
        os.set_blocking(self._readable, False)
        loop.watch(self._readable, self._pump)

    @property
    def is_open(self) -> bool:
        """Returns whether any process may still write there."""
        return self._readable >= 0

    @property
    def last_words(self) -> str:
        return self._tail.decode("utf-8", "replace").strip()

    def say(self, text: str) -> None:
        """Writes a line of ours for the reader of the log."""
        self._log.write(f"fleetctl: {text}\n".encode("utf-8", "backslashreplace"))
        self._tell()

    def drain(self) -> None:
        """Takes the output written by now."""
        for _ in range(DRAIN_READS_MAX):
            if not self._pump():
                return

    def close_writable(self) -> None:
        """Closes the writable end: no further process is started with it."""
        if self.writable >= 0:
            os.close(self.writable)
            self.writable = -1

    def stop(self) -> None:
        """Stops reading."""
        if self._readable >= 0:
            self._loop.forget(self._readable)
            os.close(self._readable)
            self._readable = -1

    def close(self) -> None:
        """Closes the complete log."""
        self._log.close()

    def _pump(self) -> bool:
        """Moves some output to the log; False when there is none now."""
        if self._readable < 0:
            return False
        try:
            data = os.read(self._readable, READ_BYTES_MAX)
        except BlockingIOError:
            return False
        if not data:
            self.stop()
            return False
        self._log.write(data)
        if self.hears is not None:
            self.hears(data)
        self._tail = (self._tail + data)[-LAST_WORDS_BYTES:]
        self._tell()
        return True


class Looking:
    def __init__(self, journal: Journal, say: Callable[[str], None]) -> None:
        """say: writes a line to the log of the run."""
        self._journal = journal
        self._say = say
        self._metrics: Optional[MetricLines] = None  # of its file, once there is one
        self._followers: list[Follower] = []
        self._checkpoints: Optional[Watch] = None
        self._pace: Optional[Pace] = None
        self._heard = 0  # bytes of output
        self._hears: Optional[Callable[[bytes], None]] = None  # a follower of the output

    def begin(
        self,
        order: dict[str, Any],
        commit: Callable[[list[str], Callable[[str], None]], None],
        variables: Callable[[], dict[str, str]],
    ) -> None:
        """Prepares for the start of the task. commit: makes mounts durable and calls back with the
        failure; variables: returns those of its environment.
        """
        if order.get("metrics"):
            from fleetctl.guest.remote.run.files import follow_metrics

            followed = follow_metrics(order, start_directory(order), self._say)
            self._hears = followed.hear
            self._followers.append(followed)
        if order.get("checkpoint") and order["checkpoint"]["format"] != "none":
            from fleetctl.guest.remote.run.files import watch_of

            self._checkpoints = watch_of(order, commit, self._say, variables)
            self._followers.append(self._checkpoints)
        if order.get("samples"):
            from fleetctl.guest.supervision.pace import Gpus

            self._followers.append(Gpus(None))
        if order.get("progress"):
            from fleetctl.guest.supervision.pace import Pace

            self._pace = Pace(order["progress"], time.monotonic())

    def trial(
        self,
        order: dict[str, Any],
        variables: dict[str, str],
        directory: str,
    ) -> dict[str, str]:
        """Returns variables for a program that may use wandb for parameters; see `trial_of`."""
        from fleetctl.guest.remote.run.files import trial_of

        trial = trial_of(order, variables, directory)
        self._followers.append(trial)
        return trial.variables

    def hear(self, data: bytes) -> None:
        """Takes some of the task's output."""
        self._heard += len(data)
        if self._hears is not None:
            self._hears(data)

    def saved(self, event: dict[str, Any]) -> bool:
        """Returns whether the event reported a checkpoint, which is in the journal then."""
        return self._checkpoints is not None and self._checkpoints.hear(event, self._journal)

    def take(self, *, whole: bool = False) -> bool:
        """Records new reports of files; returns whether there were any. whole: the last call."""
        from fleetctl.guest.remote.run.files import read_metrics

        self._metrics, news = read_metrics(self._metrics, self._journal, self._say, whole=whole)
        for follower in self._followers:
            news = follower.take(self._journal, whole=whole) or news
        return news

    def copies(self) -> bool:
        """Returns whether a checkpoint is still being copied, once the program has ended."""
        return self._checkpoints is not None and self._checkpoints.copies(self._journal)

    def ends_in_s(self, pids: Callable[[], Iterable[int]]) -> Optional[float]:
        """Returns seconds until a task that hangs is to be ended, once; None while it makes
        progress. See pace.py.
        """
        if self._pace is None:
            return None
        from fleetctl.guest.supervision.pace import ends_in_s

        pace = self._pace
        step = self._journal.step
        count = self._checkpoints.count if self._checkpoints is not None else 0
        wait_s = ends_in_s(pace, (step, count, self._heard), say=self._say, pids=pids)
        self._pace = pace if wait_s is None else None
        return wait_s

    def lost(self) -> None:
        """Drops unreported checkpoints: the volumes could not be made durable."""
        if self._checkpoints is not None:
            self._checkpoints.lost()

    @property
    def remark(self) -> str:
        """Returns a remark for the user on its metrics, or ""."""
        if self._metrics:
            return self._metrics.remark
        return ""

    def conclude(self, line: str, ended: dict[str, Any]) -> str:
        """Returns the journal's line for the result, after the followers changed it and the end."""
        for follower in self._followers:
            line = follower.conclude(line, ended, self._journal)
        return line
