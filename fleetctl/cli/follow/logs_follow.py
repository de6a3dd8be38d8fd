"""`fleetctl logs -f`: print what tasks write as it comes, until their object is over."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fleetctl.cli.follow.logs_select import Pick, ending
from fleetctl.cli.follow.logs_stream import NodeStreams
from fleetctl.cli.follow.supervise import Supervisor
from fleetctl.cli.output.render import Screen
from fleetctl.common.deadline import Every
from fleetctl.controllers.model import LIVE_STATES
from fleetctl.views.objects import DELETING, View
from fleetctl.views.reading import Reading
from fleetctl.views.tasks import CACHED, Task

# Looking for new runs reads all runs of the object; their output is looked at in every turn.
LOOK_EVERY_S = 0.2


def follow(
    state_dir: Path, views: Sequence[View], pick: Pick, reading: Reading, screen: Screen
) -> int:
    """0 once all the objects are over, or gone, and all that was asked for is printed."""
    followed = [Followed(state_dir, seen, pick, reading, screen) for seen in views]
    looks = Every(LOOK_EVERY_S, first_s=0.0)
    with Supervisor(state_dir, screen) as supervisor:
        while followed:
            due = looks.due()
            followed = [one for one in followed if one.goes_on(reading, due=due)]
            if followed:
                supervisor.check()
                reading.pause()
    return 0


class Followed:
    """One object whose runs are being printed: the newest attempt of each task, and all that come.

    since_s: of those attempts only the ones that live, or were made since then.
    """

    def __init__(
        self,
        state_dir: Path,
        seen: View,
        pick: Pick,
        reading: Reading,
        screen: Screen,
        *,
        since_s: float = 0.0,
    ) -> None:
        self._uid, self._pick = seen.resource.uid, pick
        self._follower = Follower(state_dir, pick, screen)
        for task in pick.tasks(seen, reading, every=True):
            self._follower.known(task)
        for task in pick.tasks(seen, reading):
            if task.run.state in LIVE_STATES or task.run.created_at_s >= since_s:
                self._follower.show(seen, task)

    def goes_on(self, reading: Reading, *, due: bool) -> bool:
        """Print what is new. due: look for new runs, too."""
        now = reading.by_uid(self._uid)
        over = now is None or now.over or now.phase == DELETING
        if now is not None and (over or due):
            for task in list(self._pick.tasks(now, reading, every=True)):
                self._follower.show_new(now, task)
        live = self._follower.drain()
        return now is not None and not (over and live == 0)


class Output:
    """What the tasks of several objects print, beside something else that is waited for.

    since_s: what was made before, and has ended, is not shown again. prefixed: lines say whose they
    are.
    """

    def __init__(
        self,
        state_dir: Path,
        views: Sequence[View],
        reading: Reading,
        screen: Screen,
        *,
        since_s: float,
        prefixed: bool = True,
    ) -> None:
        pick = Pick(None, False, None, None, prefixed, several=len(views) > 1)
        self._reading = reading
        self._followed = [
            Followed(state_dir, seen, pick, reading, screen, since_s=since_s) for seen in views
        ]
        self._looks = Every(LOOK_EVERY_S, first_s=0.0)

    def show(self) -> None:
        """Print what is new, then sleep for one poll."""
        due = self._looks.due()
        for one in self._followed:
            one.goes_on(self._reading, due=due)
        self._reading.pause()

    def finish(self) -> None:
        """Print what is left, of objects that are over to their last word."""
        for one in self._followed:
            one.goes_on(self._reading, due=True)


class Follower:
    """The runs that are being printed, by name, and those that need no more attention."""

    def __init__(self, state_dir: Path, pick: Pick, screen: Screen) -> None:
        self._place = state_dir
        self._pick = pick
        self._screen = screen
        self._open: dict[str, NodeStreams] = {}
        self._done: set[str] = set()

    def known(self, task: Task) -> None:
        """Not to be printed, unless `show` asks for it."""
        self._done.add(task.run.name)

    def show(self, seen: View, task: Task) -> None:
        self._done.discard(task.run.name)
        self.show_new(seen, task)

    def show_new(self, seen: View, task: Task) -> None:
        """Open the stream of a run that is new; close that of one that has ended."""
        name = task.run.name
        if name in self._done or task.state == CACHED:  # which ran nothing that could print
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
            self._screen.talk(f"{stream.name} -- {ending(task)}")

    def drain(self) -> int:
        """Print what the open streams have; how many are open."""
        streams = [it for it in self._open.values() if not it.waits(self._screen)]
        for stream in streams:
            stream.drain()
        for stream in streams:
            stream.show_unfinished(alone=len(self._open) == 1)
        self._screen.flush()
        return len(self._open)
