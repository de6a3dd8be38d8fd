"""The live display of `apply --wait` on a terminal. The only user of rich; loaded only there."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column

from fleetctl.cli.goals import tally
from fleetctl.cli.render import Screen
from fleetctl.cli.text import safe, scalar, shorten
from fleetctl.cli.view import View, mapping, why

# More bars than a screen has lines would scroll; the rest is counted in words.
BARS_MAX = 20
REFRESH_PER_S = 8
# Beside key, bar, phase and counts this still fits a line of 80 cells in most cases.
EXTRA_CHARS_MAX = 32


class LiveProgress:
    """A bar an object, redrawn in place on stderr."""

    def __init__(self, screen: Screen) -> None:
        console = Console(
            file=screen.talk_stream,
            force_terminal=True,  # the caller has made sure
            no_color=not screen.talk_colour,
            markup=False,
            highlight=False,
            emoji=False,
        )
        self._progress = Progress(
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
            BarColumn(bar_width=16),
            TextColumn("{task.fields[said]}", markup=False),
            TimeElapsedColumn(),
            console=console,
            refresh_per_second=REFRESH_PER_S,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._bars: dict[str, TaskID] = {}
        screen.flush()
        self._progress.start()

    def show(self, views: Sequence[View]) -> None:
        for view in views[:BARS_MAX]:
            uid = view.resource.uid
            if uid not in self._bars:
                self._bars[uid] = self._progress.add_task(safe(view.key), total=None, said="")
            total = view.status.get("total")
            self._progress.update(
                self._bars[uid],
                completed=view.count("succeeded") + view.count("failed"),
                total=total if isinstance(total, int) else None,
                said=said(view),
            )

    def close(self) -> None:
        self._progress.stop()


def said(seen: View) -> str:
    """What stands beside the bar: phase, counts, and the best so far or why it stands still."""
    metric = mapping(seen.map("best").get("metric"))
    best = f"best {metric.get('name')}={scalar(metric.get('value'))}" if metric else ""
    extra = best or ("" if seen.over else why(seen))
    parts = (safe(seen.phase), tally(seen), safe(shorten(extra, EXTRA_CHARS_MAX)))
    return "  ".join(part for part in parts if part)
