"""Waits of a Fleet: until objects meet a goal, or can no longer meet it. The progress is data for a
callback, a display that a notebook updates, or lines.

IPython is imported only where a notebook runs this.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from importlib import import_module
from itertools import islice
from typing import Any, Protocol, overload

from fleetctl.client.fleet_base import FleetBase
from fleetctl.client.objects import FleetObject, FleetObjects, object_of
from fleetctl.common.clock import RepeatTimer, SystemClock
from fleetctl.common.errors import Conflict, FleetctlError, UsageError
from fleetctl.common.text import escape_line
from fleetctl.daemon.client.overtaken import OvertakenObjects, describe_overtaking
from fleetctl.daemon.client.socket_client import results_of
from fleetctl.tracking.kept_by import HELD
from fleetctl.views.columns import last_line
from fleetctl.views.goals import (
    GoalOutcome,
    GoalStatus,
    WaitGoal,
    check_goal,
    format_tally,
    parse_goal,
)
from fleetctl.views.objects import FAILED, READY, SUSPENDED, View, explain_status
from fleetctl.views.store_reading import StoreReading, must_find, open_reading
from fleetctl.views.tasks import Task

FAILURES_KEPT_MAX = 10
FAILURES_NAMED_MAX = 3
_LASTING = ("delete", "condition")  # goals that objects without work may meet

UPDATE_EVERY_S = 0.5  # of a notebook's display: each update is a message that the notebook keeps
LINE_EVERY_S = 5.0  # of counts in lines; a new phase is printed at once
OBJECTS_SHOWN_MAX = 50


@dataclass(frozen=True, slots=True)
class UnitFailure:
    """A unit that failed for good. message: the end of its output, such as a traceback; hint: what
    its user can do.
    """

    index: int
    attempt: int
    reason: str
    message: str
    hint: str = ""

    def __repr__(self) -> str:
        return f"<unit {self.index}: {last_line(self.message) or self.reason}>"


class GoalMissed(FleetctlError):
    """Raised where the goal of a wait can no longer be met. reason: a word of the object's status,
    such as `FailedIndexes`; why: a sentence; failures: of its first units.
    """

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        key: str = "",
        reason: str = "",
        why: str = "",
        failures: Sequence[UnitFailure] = (),
    ) -> None:
        super().__init__(message, hint=hint)
        self.key = key
        self.reason = reason
        self.why = why
        self.failures = tuple(failures)


class FleetWaits(FleetBase):
    """The methods of a Fleet that block until something holds."""

    @overload
    def wait(
        self,
        key: str,
        goal_: str = "complete",
        *,
        timeout_s: float | None = None,
        progress: ProgressChoice = None,
    ) -> FleetObject: ...
    @overload
    def wait(
        self,
        key: list[str] | tuple[str, ...],
        goal_: str = "complete",
        *,
        timeout_s: float | None = None,
        progress: ProgressChoice = None,
    ) -> FleetObjects: ...
    def wait(
        self,
        key: str | list[str] | tuple[str, ...],
        goal_: str = "complete",
        *,
        timeout_s: float | None = None,
        progress: ProgressChoice = None,
    ) -> FleetObject | FleetObjects:
        """Blocks until `complete`, `finished`, `failed`, `first-result`, `delete` or
        `condition=NAME` holds for an object, or for each of several.

        Starts a controller if none runs. progress: None updates a display where a notebook runs
        this; True also prints lines elsewhere; a function gets each new state; False shows nothing.
        Raises GoalMissed with the reason when the goal can no longer hold, TimedOut (a
        TimeoutError) after timeout_s, and Conflict where this Fleet applied the object and another
        apply gave it other work since: the error names that change, and waiting once more waits
        for it.
        """
        keys = (key,) if isinstance(key, str) else tuple(dict.fromkeys(key))
        wanted = parse_goal(goal_)
        display = choose_display(progress)
        with open_reading(self.home) as reading:
            found = [self._find_waitable(it, wanted, reading) for it in keys]
            seen = {it.resource.uid: it for it in found}
            pending = dict(zip(seen, keys, strict=False))
            overtaken = OvertakenObjects(self._works)

            def met() -> bool:
                for uid in list(pending):
                    now = reading.by_uid(uid)
                    if now is not None:
                        seen[uid] = now
                        self._refuse_overtaken(now, overtaken, reading)
                    verdict = check_goal(wanted, now)
                    if verdict.outcome is GoalOutcome.IMPOSSIBLE:
                        raise _build_missed(pending[uid], goal_, verdict, seen[uid], reading)
                    if verdict.outcome is GoalOutcome.MET:
                        del pending[uid]
                display.show([read_progress(it) for it in seen.values()])
                return not pending

            def describe() -> str:
                return "; ".join(str(read_progress(seen[uid])) for uid in pending)

            try:
                self._until(reading, met, timeout_s, describe)
            finally:
                display.close([read_progress(it) for it in seen.values()])
        now_s = SystemClock().now_s()
        objects = FleetObjects(object_of(it, now_s) for it in seen.values())
        return objects[0] if isinstance(key, str) else objects

    def reconcile(
        self,
        key: str,
        *,
        yes: bool = False,
        timeout_s: float | None = None,
    ) -> FleetObject:
        """Looks at the repository of a Source now, makes its objects equal to it, and returns the
        Source. yes: running work may be lost. Raises GoalMissed where the commit is refused or
        needs `yes`, TimedOut, UsageError for an object that is no Source.
        """
        target = self._target(key)
        if target.kind.name != "Source":
            raise UsageError(f"{target.key} is no Source; `reconcile` takes Sources")
        self._must_find(target)
        request = {"verb": "reconcile", "keys": [target.key], "yes": yes}
        (asked,) = results_of(self._send_request(request))
        name = str(asked.get("request"))
        with open_reading(self.home) as reading:
            uid = must_find(target, reading).resource.uid
            last = must_find(target, reading)

            def met() -> bool:
                nonlocal last
                now = reading.by_uid(uid)
                if now is None:
                    raise GoalMissed(f"{key} was deleted", key=target.key)
                last = now
                return now.phase == SUSPENDED or now.text("request") == name

            self._until(reading, met, timeout_s, lambda: str(read_progress(last)))
        if last.phase != READY:
            reason, why = last.text("reason"), last.text("message")
            hint = "yes=True" if reason == HELD else last.text("hint")
            raise GoalMissed(
                f"{key} is not equal to its repository: {why or last.phase}",
                hint=hint,
                key=last.key,
                reason=reason,
                why=why,
            )
        return object_of(last, SystemClock().now_s())

    def _find_waitable(
        self,
        key: str,
        wanted: WaitGoal,
        reading: StoreReading,
    ) -> View:
        target = self._target(key)
        if not target.kind.runs and wanted.word not in _LASTING:
            raise UsageError(
                f"a {target.kind.name} never ends",
                hint="wait for `delete` or for `condition=NAME`",
            )
        return must_find(target, reading)

    def _refuse_overtaken(
        self,
        seen: View,
        overtaken: OvertakenObjects,
        reading: StoreReading,
    ) -> None:
        overtaken.look(seen)
        if seen.resource.uid in overtaken:
            del self._works[seen.key]
            hint = f"fleetctl events {seen.key}"
            raise Conflict(describe_overtaking(seen, reading), hint=hint)


def _build_missed(
    key: str,
    goal: str,
    verdict: GoalStatus,
    last: View,
    reading: StoreReading,
) -> GoalMissed:
    there = reading.by_uid(last.resource.uid)
    failed = islice(reading.failed_tasks(last), FAILURES_KEPT_MAX) if there is not None else ()
    failures = _list_failures(failed)
    named = [repr(it)[1:-1] for it in failures[:FAILURES_NAMED_MAX]]
    return GoalMissed(
        "; ".join([f"{key} cannot meet `{goal}`: {verdict.because}", *named]),
        hint=f"fleetctl describe {key}" if there is not None else "",
        key=last.key,
        reason=last.text("reason") if last.phase == FAILED else "",
        why=verdict.because,
        failures=failures,
    )


def _list_failures(tasks: Iterable[Task]) -> list[UnitFailure]:
    return [
        UnitFailure(run.index, run.attempt, run.reason, run.message, run.hint)
        for run in (it.run for it in tasks)
    ]


@dataclass(frozen=True, slots=True)
class WaitProgress:
    """The state of an object that is waited for. done: units that have ended; total: of units, None
    where it is not known; tally: as words, `3/6 done, 2 active`. why: a sentence on its obstacle.
    """

    key: str
    phase: str
    done: int
    total: int | None
    active: int
    failed: int
    tally: str
    why: str

    def __str__(self) -> str:
        why = f" ({self.why})" if self.why else ""
        return f"{self.key}: {self.phase}, {self.tally}{why}"


ProgressChoice = bool | Callable[[WaitProgress], None] | None


class WaitDisplay(Protocol):
    def show(self, states: Sequence[WaitProgress]) -> None:
        """Shows the present state of all objects, as often as is of use."""
        ...

    def close(self, states: Sequence[WaitProgress]) -> None:
        """Shows the last state."""
        ...


def read_progress(seen: View) -> WaitProgress:
    """Returns the state of an object as it is stored now."""
    total = seen.status.get("total")
    return WaitProgress(
        seen.key,
        seen.phase,
        seen.settled,
        total if isinstance(total, int) else None,
        seen.active,
        seen.count("failed"),
        format_tally(seen),
        "" if seen.over else explain_status(seen),
    )


def choose_display(wanted: ProgressChoice) -> WaitDisplay:
    """Returns the display. wanted: as the parameter `progress` of `Fleet.wait`."""
    if callable(wanted):
        return _CallbackProgress(wanted)
    if wanted is False:
        return _CallbackProgress(lambda _: None)
    if in_notebook():
        return NotebookProgress()
    return PrintedProgress() if wanted else _CallbackProgress(lambda _: None)


def in_notebook() -> bool:
    """Returns True where a kernel of IPython runs this program; imports nothing."""
    library = sys.modules.get("IPython")
    shell = library.get_ipython() if library is not None else None
    return getattr(shell, "kernel", None) is not None


class _CallbackProgress:
    """Calls a function with each new state."""

    def __init__(self, function: Callable[[WaitProgress], None]) -> None:
        self._function = function
        self._shown: dict[str, WaitProgress] = {}

    def show(self, states: Sequence[WaitProgress]) -> None:
        for state in states:
            if self._shown.get(state.key) != state:
                self._shown[state.key] = state
                self._function(state)

    def close(self, states: Sequence[WaitProgress]) -> None:
        self.show(states)


class PrintedProgress:
    """Prints lines on stderr: at once when a phase changes, else counts every LINE_EVERY_S."""

    def __init__(self) -> None:
        self._shown: dict[str, WaitProgress] = {}
        self._turn = RepeatTimer(LINE_EVERY_S, first_s=LINE_EVERY_S)

    def show(self, states: Sequence[WaitProgress]) -> None:
        due = self._turn.due()
        for state in states:
            shown = self._shown.get(state.key)
            if shown == state or not (due or shown is None or shown.phase != state.phase):
                continue
            self._shown[state.key] = state
            print(escape_line(str(state)), file=sys.stderr, flush=True)

    def close(self, states: Sequence[WaitProgress]) -> None:
        self.show(states)


class NotebookProgress:
    """Updates a single output of the notebook's cell."""

    def __init__(self) -> None:
        self._library: Any = import_module("IPython.display")
        self._handle: Any = None
        self._text = ""
        self._turn = RepeatTimer(UPDATE_EVERY_S, first_s=0.0)

    def show(self, states: Sequence[WaitProgress]) -> None:
        if self._turn.due():
            self._update(states)

    def close(self, states: Sequence[WaitProgress]) -> None:
        self._update(states)

    def _update(self, states: Sequence[WaitProgress]) -> None:
        text = render_progress(states)
        if text == self._text or not states:
            return
        self._text = text
        html = self._library.HTML(text)
        if self._handle is None:
            self._handle = self._library.display(html, display_id=True)
        else:
            self._handle.update(html)


def render_progress(states: Sequence[WaitProgress]) -> str:
    """Returns a bar for each object as HTML."""
    rows = "".join(map(_render_row, states[:OBJECTS_SHOWN_MAX]))
    left = len(states) - OBJECTS_SHOWN_MAX
    more = f"<p>and {left:,} more</p>" if left > 0 else ""
    return f"<table><tbody>{rows}</tbody></table>{more}"


def _render_row(state: WaitProgress) -> str:
    bar = "<progress></progress>"  # without a value: how much there is to do is not known
    if state.total is not None:
        bar = f'<progress value="{state.done}" max="{max(1, state.total)}"></progress>'
    cells = (state.phase, state.tally, state.why)
    texts = "".join(f"<td>{escape(it)}</td>" for it in cells)
    return f"<tr><th>{escape(state.key)}</th><td>{bar}</td>{texts}</tr>"


_: tuple[type[WaitDisplay], ...] = (_CallbackProgress, PrintedProgress, NotebookProgress)
