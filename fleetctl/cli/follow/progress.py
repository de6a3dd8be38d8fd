"""`fleetctl apply --wait`: follows objects to their end, gives up once no event that is to come can
help them, and prints how each ended.

A rich display on a terminal, plain lines otherwise.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from fleetctl.cli.follow.wait_supervisor import WaitSupervisor, report_detached
from fleetctl.cli.output.screen import Screen
from fleetctl.cli.show.summary import summary_lines
from fleetctl.common.clock import Clock, Deadline, RepeatTimer, SystemClock
from fleetctl.common.text import escape_line
from fleetctl.daemon.client.overtaken import OvertakenObjects, describe_overtaking
from fleetctl.views.goals import format_tally
from fleetctl.views.kinds import Target, format_commands, target_with
from fleetctl.views.objects import DELETING, SKIPPED, SUCCEEDED, SUSPENDED, View, explain_status
from fleetctl.views.store_reading import StoreReading, open_reading

if TYPE_CHECKING:
    from fleetctl.cli.follow.logs_follow import TaskOutput


OVERTAKEN = 5
TIMED_OUT = 124
# Plain progress: at once when a phase changes, and counts at most this often.
PAUSE_MAX_S = 0.5  # after a look at all, however long it took
LOOK_PAUSES = 2.0  # as long as a look takes: a third of a core at most
TALK_EVERY_S = 5.0

MISSING = "missing"
CAPACITY = "capacity"
ACCOUNT = "account"
# An object that was applied just now may fix it, and the next look of the controller is due.
STUCK_S = 3.0
# A service's single error is no reason; the request is repeated several times in that time.
ACCOUNT_S = 60.0


class ProgressDisplay(Protocol):
    def show(self, views: Sequence[View]) -> None:
        """Shows the present state of all objects that are followed."""
        ...

    def close(self) -> None:
        """Leaves the terminal as it was."""
        ...


def follow_to_end(
    state_dir: Path,
    keys: Sequence[str],
    screen: Screen,
    *,
    timeout_s: float | None,
    waits_for: Collection[str] = (),
    logs_since_s: float | None = None,
    works: Mapping[str, object] | None = None,
) -> int:
    """Returns 0 when every object that does work succeeded, 1 when one did not or cannot continue
    by itself, 5 when one does the work of another apply by now, 124 when time ran out. waits_for:
    lacks to wait for all the same; logs_since_s: show the output of tasks,
    from earlier ones only if they live; works: generation and digest of each object's work, by key.
    """
    targets = [target_with(key) for key in keys]
    working = [one for one in targets if one.kind.runs]
    if not working:
        return 0

    deadline = Deadline(timeout_s)
    overtaken = OvertakenObjects(works or {})
    try:
        with open_reading(state_dir) as reading:
            uids = _resolve_uids(working, reading)
            output = None
            if logs_since_s is not None:
                output = _open_output(state_dir, uids, reading, screen, logs_since_s)
            ended = wait_until_ended(
                state_dir,
                uids,
                reading,
                screen,
                deadline=deadline,
                patience=StuckPolicy(waits_for),
                output=output,
                overtaken=overtaken,
            )
            return _report_end(working, uids, ended, overtaken, reading, screen)
    except KeyboardInterrupt:
        names = [one.key for one in working]
        return report_detached(names, format_commands("wait", names), screen)


def _open_output(
    state_dir: Path,
    uids: Sequence[str],
    reading: StoreReading,
    screen: Screen,
    since_s: float,
) -> TaskOutput:
    """Returns the output of the objects' tasks from a time on."""
    from fleetctl.cli.follow.logs_follow import TaskOutput

    views = [view for uid in uids if (view := reading.by_uid(uid)) is not None]
    return TaskOutput(state_dir, views, reading, screen, since_s=since_s)


def _resolve_uids(targets: Sequence[Target], reading: StoreReading) -> list[str]:
    found = [reading.find(one) for one in targets]
    return [view.resource.uid if view is not None else "" for view in found]


def wait_until_ended(
    state_dir: Path,
    uids: Sequence[str],
    reading: StoreReading,
    screen: Screen,
    *,
    deadline: Deadline,
    patience: StuckPolicy,
    output: TaskOutput | None,
    overtaken: OvertakenObjects,
) -> bool:
    """Returns True when all ended, are gone, are overtaken or cannot continue by themselves; False
    when time ran out.
    """
    # Bars that are redrawn and lines of output do not go together.
    progress = _make_display(screen) if output is None else PlainProgress(screen)
    seen: dict[str, View | None] = {}
    try:
        with WaitSupervisor(state_dir, screen) as supervisor:
            while True:
                begun_s = time.monotonic()
                # Each change wakes us: an ended object is not read again for every other's.
                waiting = [uid for uid in uids if uid not in seen or not _has_ended(seen[uid])]
                waiting = [uid for uid in waiting if uid not in overtaken]
                seen.update({uid: reading.by_uid(uid) for uid in waiting or uids})
                progress.show([view for view in seen.values() if view is not None])
                left = [view for view in seen.values() if view and not _has_ended(view)]
                for view in filter(None, seen.values()):
                    overtaken.look(view)
                left = [view for view in left if view.resource.uid not in overtaken]
                if not left and not waiting:
                    return True
                if not left:
                    continue  # all objects at once, for an ended one may have begun again
                if patience.ended(left):
                    return True
                if deadline.passed:
                    return False
                supervisor.check()
                # Thousands take long to read: the worker needs the cores more.
                time.sleep(min(PAUSE_MAX_S, LOOK_PAUSES * (time.monotonic() - begun_s)))
                if output is not None:
                    output.show()
                else:
                    reading.wait_for_change(deadline)
    finally:
        if output is not None:
            output.finish()
        progress.close()


def _has_ended(seen: View | None) -> bool:
    return seen is None or seen.over or seen.phase == DELETING


def _report_end(
    working: Sequence[Target],
    uids: Sequence[str],
    ended: bool,
    overtaken: OvertakenObjects,
    reading: StoreReading,
    screen: Screen,
) -> int:
    code = 0
    stuck: list[View] = []
    others: list[View] = []
    for one, uid in zip(working, uids, strict=True):
        seen = reading.by_uid(uid)
        if seen is None or seen.phase == DELETING:
            screen.data(f"{escape_line(one.key)} was deleted")
            code = 1
        elif uid in overtaken:
            screen.data(f"{escape_line(one.key)} was changed by another")
            others.append(seen)
        elif seen.over:
            screen.data("\n".join(summary_lines(seen, reading)))
            code = code if seen.phase in (SUCCEEDED, SKIPPED) else 1
        else:
            screen.data(f"{escape_line(one.key)} {seen.phase}: {format_tally(seen)}")
            stuck += [seen] * ended
    for seen in stuck:
        screen.error(describe_stuck(seen), hint=describe_way_out(seen))
        code = 1
    for seen in others:
        screen.error(
            escape_line(describe_overtaking(seen, reading)),
            hint=f"fleetctl events {escape_line(seen.key)}",
        )
        code = OVERTAKEN
    if not ended:
        hint = escape_line(format_commands("wait", [one.key for one in working]))
        screen.error("timed out; work goes on", hint=hint)
        return TIMED_OUT
    return code


def _make_display(screen: Screen) -> ProgressDisplay:
    if screen.talk_is_terminal:
        from fleetctl.cli.output.live import LiveProgress

        return LiveProgress(screen)
    return PlainProgress(screen)


class PlainProgress:
    """Lines for a log file or a pipe."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._phases: dict[str, str] = {}
        self._lines: dict[str, str] = {}
        self._turn = RepeatTimer(TALK_EVERY_S, first_s=TALK_EVERY_S)

    def show(self, views: Sequence[View]) -> None:
        due = self._turn.due()
        for view in views:
            key = escape_line(view.key)
            changed = self._phases.get(key) != view.phase
            if not (changed or due):
                continue
            line = progress_line(view)
            if changed or self._lines.get(key) != line:
                self._screen.talk(line)
                self._phases[key], self._lines[key] = view.phase, line

    def close(self) -> None:
        self._screen.flush()


def progress_line(seen: View) -> str:
    """`batchjob/x: Running, 3/6 done, 2 active` and why it stands still, if it does."""
    because = explain_status(seen)
    if seen.phase == SUSPENDED:
        because = f"resume it with `fleetctl resume {seen.key}`"
    end = f" ({escape_line(because)})" if because and not seen.over else ""
    return f"{escape_line(seen.key)}: {escape_line(seen.phase)}, {format_tally(seen)}{end}"


_: tuple[type[ProgressDisplay], ...] = (PlainProgress,)


class StuckPolicy:
    """The state of the wait. waits_for: lacks that the user accepts to wait for."""

    def __init__(self, waits_for: Collection[str] = (), clock: Clock | None = None) -> None:
        self._waits_for = frozenset(waits_for)
        self._clock = clock or SystemClock()
        self._ends: Deadline | None = None

    def ended(self, unfinished: Sequence[View]) -> bool:
        """Returns true where all objects have lacked something for long enough."""
        lacks = [lack_of(view) for view in unfinished]
        if not all(lacks) or any(lack in self._waits_for for lack in lacks):
            self._ends = None
            return False
        if self._ends is None:
            span_s = ACCOUNT_S if ACCOUNT in lacks else STUCK_S
            self._ends = Deadline(span_s, self._clock)
        return self._ends.passed


def lack_of(seen: View) -> str:
    """Returns its lack as one word; empty while it makes progress."""
    if seen.current:
        return str(seen.map("stuck").get("lack") or "")
    return ""


def describe_stuck(seen: View) -> str:
    """Returns its lack as a sentence, for an error."""
    stuck = seen.map("stuck")
    return escape_line(
        f"{seen.key} cannot go on by itself: {stuck.get('reason')}: {stuck.get('message')}"
    )


def describe_way_out(seen: View) -> str:
    """Returns a remedy, and the flag to wait all the same."""
    hint = str(seen.map("stuck").get("hint") or f"fleetctl describe {seen.key}")
    flag = {MISSING: "--allow-missing", CAPACITY: "--wait-for-capacity"}.get(lack_of(seen), "")
    return escape_line(f"{hint}; `--wait {flag}` waits on" if flag else hint)
