"""The live display of `apply --wait` on a terminal. The only user of rich; loaded only there."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from fleetctl.cli.goals import tally
from fleetctl.cli.render import Screen
from fleetctl.cli.summary import best_line
from fleetctl.cli.text import safe
from fleetctl.cli.view import View, why

# More bars than a screen has lines would scroll; the rest is counted in words.
BARS_MAX = 20
REFRESH_PER_S = 8


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
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
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
    """What stands beside the bar: phase, counts, and the best trial or why it stands still."""
    extra = best_line(seen) or (safe(why(seen)) if not seen.over else "")
    return "  ".join(part for part in (safe(seen.phase), tally(seen), extra) if part)
