"""What a run tells while it lives, in files and in its output, and whether it still gets on.

Made by attempt.py, which looks once a second and at the end of the run. What a run does not ask
for is never imported.
"""

from __future__ import annotations

import time

from fleetctl.guest.remote.place import start_directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable, Optional, Protocol

    from fleetctl.guest.checkpoints.watch import Watch
    from fleetctl.guest.journal.metriclines import MetricLines
    from fleetctl.guest.journal.record import Journal
    from fleetctl.guest.supervision.pace import Pace

    class Follower(Protocol):
        """Reads what the program tells of its metrics; see files.py."""

        def take(self, journal: Journal, *, whole: bool = False) -> bool: ...
        def conclude(self, line: str, ended: dict[str, Any], journal: Journal) -> str: ...


class Looking:
    def __init__(self, journal: Journal, say: Callable[[str], None]) -> None:
        """say: a word in the log of the run."""
        self._journal, self._say = journal, say
        self._metrics: Optional[MetricLines] = None  # of its file, once there is one
        self._followers: list[Follower] = []
        self._checkpoints: Optional[Watch] = None
        self._pace: Optional[Pace] = None
        self._heard = 0  # bytes of output
        self._hears: Optional[Callable[[bytes], None]] = None  # one that wants its output too

    def begin(
        self,
        order: dict[str, Any],
        commit: Callable[[list[str], Callable[[str], None]], None],
        variables: Callable[[], dict[str, str]],
    ) -> None:
        """The task is to start. commit: makes mounts durable and calls with what went wrong;
        variables: of its environment.
        """
        if order.get("metrics"):
            from fleetctl.guest.remote.run.files import followed_of

            followed = followed_of(order, start_directory(order), self._say)
            self._hears = followed.hear
            self._followers.append(followed)
        if order.get("checkpoint") and order["checkpoint"]["format"] != "none":
            from fleetctl.guest.remote.run.files import watch_of

            self._checkpoints = watch_of(order, commit, self._say, variables)
            self._followers.append(self._checkpoints)
        if order.get("samples"):
            from fleetctl.guest.supervision.gpus import Gpus

            self._followers.append(Gpus(None))
        if order.get("progress"):
            from fleetctl.guest.supervision.pace import Pace

            self._pace = Pace(order["progress"], time.monotonic())

    def trial(
        self, order: dict[str, Any], variables: dict[str, str], directory: str
    ) -> dict[str, str]:
        """Variables for a program that may ask wandb for its parameters; see `trial_of`."""
        from fleetctl.guest.remote.run.files import trial_of

        trial = trial_of(order, variables, directory)
        self._followers.append(trial)
        return trial.variables

    def hear(self, data: bytes) -> None:
        """Take in some of the task's output."""
        self._heard += len(data)
        if self._hears is not None:
            self._hears(data)

    def saved(self, event: dict[str, Any]) -> bool:
        """Whether the event told of a checkpoint, which stands in the journal then."""
        return self._checkpoints is not None and self._checkpoints.hear(event, self._journal)

    def take(self, *, whole: bool = False) -> bool:
        """Take in what is new in files; whether there was anything. whole: for the last time."""
        from fleetctl.guest.remote.run.files import read_metrics

        self._metrics, news = read_metrics(self._metrics, self._journal, self._say, whole=whole)
        for follower in self._followers:
            news = follower.take(self._journal, whole=whole) or news
        return news

    def copies(self) -> bool:
        """Whether a checkpoint is still copied elsewhere, once the program has ended."""
        return self._checkpoints is not None and self._checkpoints.copies(self._journal)

    def ends_in_s(self, pids: Callable[[], Iterable[int]]) -> Optional[float]:
        """Seconds until a task that hangs is to be ended, told once; None while it gets on. See
        pace.py.
        """
        if self._pace is None:
            return None
        from fleetctl.guest.supervision.pace import ends_in_s

        pace, step = self._pace, self._journal.step
        count = self._checkpoints.count if self._checkpoints is not None else 0
        wait_s = ends_in_s(pace, (step, count, self._heard), say=self._say, pids=pids)
        self._pace = pace if wait_s is None else None
        return wait_s

    def lost(self) -> None:
        """Its volumes could not be made durable."""
        if self._checkpoints is not None:
            self._checkpoints.lost()

    @property
    def remark(self) -> str:
        """What its user should know of its metrics, or ""."""
        return self._metrics.remark if self._metrics else ""

    def conclude(self, line: str, ended: dict[str, Any]) -> str:
        """The journal's line for the result, as the followers leave it and its end."""
        for follower in self._followers:
            line = follower.conclude(line, ended, self._journal)
        return line
