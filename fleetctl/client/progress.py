"""The progress of a wait: data for a callback, a display that a notebook updates, or lines.

IPython is imported only where a notebook runs this.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from importlib import import_module
from typing import Any, Protocol

from fleetctl.common.deadline import RepeatTimer
from fleetctl.common.text import escape_line
from fleetctl.views.goals import format_tally
from fleetctl.views.objects import View, explain_status

UPDATE_EVERY_S = 0.5  # of a notebook's display: each update is a message that the notebook keeps
LINE_EVERY_S = 5.0  # of counts in lines; a new phase is printed at once
OBJECTS_SHOWN_MAX = 50


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
