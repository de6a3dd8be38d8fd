"""`fleetctl logs -f`: prints the output of tasks as it comes, until their object has ended."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fleetctl.cli.follow.logs_stream import LogSelection, NodeStreams, describe_ending
from fleetctl.cli.follow.wait_supervisor import WaitSupervisor
from fleetctl.cli.output.screen import Screen
from fleetctl.common.clock import RepeatTimer
from fleetctl.controllers.model import LIVE_STATES
from fleetctl.views.objects import DELETING, View
from fleetctl.views.store_reading import StoreReading
from fleetctl.views.tasks import CACHED, Task

# Looking for new runs reads all runs of the object; their output is read in every turn.
LOOK_EVERY_S = 0.2


def follow_logs(
    state_dir: Path,
    views: Sequence[View],
    pick: LogSelection,
    reading: StoreReading,
    screen: Screen,
) -> int:
    """Returns 0 once all the objects have ended, or are gone, and all requested output is
    printed."""
    followed = [
        FollowedObject(
            state_dir,
            seen,
            pick,
            reading,
            screen,
        )
        for seen in views
    ]
    looks = RepeatTimer(LOOK_EVERY_S, first_s=0.0)
    with WaitSupervisor(state_dir, screen) as supervisor:
        while followed:
            due = looks.due()
            followed = [one for one in followed if one.goes_on(reading, due=due)]
            if followed:
                supervisor.check()
                reading.pause()
    return 0


class FollowedObject:
    """One object whose runs are being printed: the newest attempt of each task, and all later ones.

    since_s: of earlier attempts only the ones that live, or were made since then.
    """

    def __init__(
        self,
        state_dir: Path,
        seen: View,
        pick: LogSelection,
        reading: StoreReading,
        screen: Screen,
        *,
        since_s: float = 0.0,
    ) -> None:
        self._uid = seen.resource.uid
        self._pick = pick
        self._follower = RunLogFollower(state_dir, pick, screen)
        for task in pick.tasks(seen, reading, every=True):
            self._follower.known(task)
        for task in pick.tasks(seen, reading):
            if task.run.state in LIVE_STATES or task.run.created_at_s >= since_s:
                self._follower.show(seen, task)

    def goes_on(self, reading: StoreReading, *, due: bool) -> bool:
        """Prints new output. due: looks for new runs, too."""
        now = reading.by_uid(self._uid)
        over = now is None or now.over or now.phase == DELETING
        if now is not None and (over or due):
            for task in list(self._pick.tasks(now, reading, every=True)):
                self._follower.show_new(now, task)
        live = self._follower.drain()
        return now is not None and not (over and live == 0)


class TaskOutput:
    """The output of several objects' tasks, printed while the caller waits for something else.

    since_s: runs made before, and ended, are not shown again. prefixed: lines name their task.
    """

    def __init__(
        self,
        state_dir: Path,
        views: Sequence[View],
        reading: StoreReading,
        screen: Screen,
        *,
        since_s: float,
        prefixed: bool = True,
    ) -> None:
        pick = LogSelection(
            None,
            False,
            None,
            None,
            prefixed,
            several=len(views) > 1,
        )
        self._reading = reading
        self._followed = [
            FollowedObject(
                state_dir,
                seen,
                pick,
                reading,
                screen,
                since_s=since_s,
            )
            for seen in views
        ]
        self._looks = RepeatTimer(LOOK_EVERY_S, first_s=0.0)

    def show(self) -> None:
        """Prints new output, then sleeps for one poll."""
        due = self._looks.due()
        for one in self._followed:
            one.goes_on(self._reading, due=due)
        self._reading.pause()

    def finish(self) -> None:
        """Prints the rest, for ended objects to their last line."""
        for one in self._followed:
            one.goes_on(self._reading, due=True)


class RunLogFollower:
    """The runs that are being printed, by name, and the names of finished ones."""

    def __init__(
        self,
        state_dir: Path,
        pick: LogSelection,
        screen: Screen,
    ) -> None:
        self._place = state_dir
        self._pick = pick
        self._screen = screen
        self._open: dict[str, NodeStreams] = {}
        self._done: set[str] = set()

    def known(self, task: Task) -> None:
        """Excludes a run from printing, unless `show` includes it."""
        self._done.add(task.run.name)

    def show(self, seen: View, task: Task) -> None:
        self._done.discard(task.run.name)
        self.show_new(seen, task)

    def show_new(self, seen: View, task: Task) -> None:
        """Opens the stream of a new run; closes that of an ended one."""
        name = task.run.name
        if name in self._done or task.state == CACHED:  # it ran no program that could print
            return
        if name not in self._open:
            self._open[name] = self._pick.stream(self._place, seen, task, self._screen)
        if task.run.state not in LIVE_STATES:
            if self._open[name].waits(self._screen):
                return
            stream = self._open.pop(name)
            stream.drain()
            stream.finish()
            self._done.add(name)
            self._screen.talk(f"{stream.name} -- {describe_ending(task)}")

    def drain(self) -> int:
        """Prints new lines of the open streams; returns how many are open."""
        streams = [it for it in self._open.values() if not it.waits(self._screen)]
        for stream in streams:
            stream.drain()
        for stream in streams:
            stream.show_unfinished(alone=len(self._open) == 1)
        self._screen.flush()
        return len(self._open)
