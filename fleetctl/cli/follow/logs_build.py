"""`fleetctl logs --build`: prints the logs of an object's image builds."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from fleetctl.cli.follow.logs_stream import print_line
from fleetctl.cli.follow.wait_supervisor import WaitSupervisor
from fleetctl.cli.output.screen import Screen
from fleetctl.common.errors import UsageError
from fleetctl.common.text import escape_line
from fleetctl.providers.rundir.build_logs import is_building, logs_of
from fleetctl.views.objects import View
from fleetctl.views.store_reading import StoreReading


def show_build_logs(
    state_dir: Path,
    seen: View,
    args: Namespace,
    reading: StoreReading,
    screen: Screen,
) -> int:
    """Prints the logs. Raises UsageError for flags about tasks."""
    if args.failed or args.previous or args.index is not None or args.attempt is not None:
        raise UsageError(
            "`--build` is about images, which all tasks share",
            hint="leave out --index, --failed, --attempt and --previous",
        )
    builds = _BuildLogs(state_dir, seen.resource.uid, screen, tail=args.tail)
    if not args.follow:
        builds.drain(finish=True)
        if not builds.any:
            screen.talk(f"no image of {escape_line(seen.key)} has been built here")
        return 0
    with WaitSupervisor(state_dir, screen) as supervisor:
        while True:
            now = reading.by_uid(seen.resource.uid)
            # Read before the logs, so that lines from before the end are still printed.
            going_on = builds.going_on()
            begun = now is not None and next(iter(reading.attempts(now)), None) is not None
            over = now is None or now.over or (begun and builds.any)
            builds.drain(finish=over and not going_on)
            if over and not going_on:
                return 0
            supervisor.check()
            reading.pause()


class _BuildLogs:
    """An object's image logs, one after the other, and the printed length of each."""

    def __init__(
        self,
        state_dir: Path,
        uid: str,
        screen: Screen,
        *,
        tail: int | None,
    ) -> None:
        self._place = state_dir
        self._uid = uid
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
        """Prints all whole lines that are there now; with `finish`, a last one without an end."""
        for log in logs_of(self._place, self._uid):
            first = log not in self._offsets
            data = self._read(log)
            *lines, rest = (self._partial.get(log, b"") + data).split(b"\n")
            if finish and rest:
                lines = [*lines, rest]
                rest = b""
            self._partial[log] = rest
            if first and self._tail is not None:
                lines = lines[len(lines) - min(self._tail, len(lines)) :]
            for line in lines:
                print_line(self._screen, "", line)

    def _read(self, log: Path) -> bytes:
        """Returns the new bytes of a log. One that is shorter than before belongs to another
        build."""
        at = self._offsets.get(log, 0)
        if log.stat().st_size < at:
            at = 0
        with log.open("rb") as file:
            file.seek(at)
            data = file.read()
        self._offsets[log] = at + len(data)
        return data
