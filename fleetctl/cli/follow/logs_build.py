"""`fleetctl logs --build`: what was printed while the images of an object were built."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from fleetctl.cli.follow.logs_stream import print_line
from fleetctl.cli.follow.supervise import Supervisor
from fleetctl.cli.output.render import Screen
from fleetctl.common.errors import UsageError
from fleetctl.common.text import safe
from fleetctl.providers.rundir.builds import is_building, logs_of
from fleetctl.views.objects import View
from fleetctl.views.reading import Reading


def show(state_dir: Path, seen: View, args: Namespace, reading: Reading, screen: Screen) -> int:
    """Raises UsageError for flags that speak of tasks."""
    if args.failed or args.previous or args.index is not None or args.attempt is not None:
        raise UsageError(
            "`--build` is about images, which all tasks share",
            hint="leave out --index, --failed, --attempt and --previous",
        )
    builds = _Builds(state_dir, seen.resource.uid, screen, tail=args.tail)
    if not args.follow:
        builds.drain(finish=True)
        if not builds.any:
            screen.talk(f"no image of {safe(seen.key)} has been built here")
        return 0
    with Supervisor(state_dir, screen) as supervisor:
        while True:
            now = reading.by_uid(seen.resource.uid)
            # Asked before the read, so that what came in before the end is still printed.
            going_on = builds.going_on()
            begun = now is not None and next(iter(reading.attempts(now)), None) is not None
            over = now is None or now.over or (begun and builds.any)
            builds.drain(finish=over and not going_on)
            if over and not going_on:
                return 0
            supervisor.check()
            reading.pause()


class _Builds:
    """The logs of one object's images, one after the other; how far each is printed."""

    def __init__(self, state_dir: Path, uid: str, screen: Screen, *, tail: int | None) -> None:
        self._place, self._uid = state_dir, uid
        self._screen = screen
        self._tail = tail
        self._offsets: dict[Path, int] = {}
        self._partial: dict[Path, bytes] = {}

    @property
    def any(self) -> bool:
        return bool(self._offsets)

    def going_on(self) -> bool:
        return any(is_building(log) for log in logs_of(self._place, self._uid))

    def drain(self, *, finish: bool) -> None:
        """Print all whole lines that are there now; with `finish`, a last one without an end."""
        for log in logs_of(self._place, self._uid):
            first = log not in self._offsets
            data = self._read(log)
            *lines, rest = (self._partial.get(log, b"") + data).split(b"\n")
            if finish and rest:
                lines, rest = [*lines, rest], b""
            self._partial[log] = rest
            if first and self._tail is not None:
                lines = lines[len(lines) - min(self._tail, len(lines)) :]
            for line in lines:
                print_line(self._screen, "", line)

    def _read(self, log: Path) -> bytes:
        """What is new in a log. One that is shorter than before belongs to another build."""
        at = self._offsets.get(log, 0)
        if log.stat().st_size < at:
            at = 0
        with log.open("rb") as file:
            file.seek(at)
            data = file.read()
        self._offsets[log] = at + len(data)
        return data
