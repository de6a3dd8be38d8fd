"""The live display of `apply --wait` on a terminal. The only user of rich; loaded only there."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column

from fleetctl.cli.output.render import Screen
from fleetctl.common.text import plural, safe, scalar, shorten, width
from fleetctl.views.goals import tally
from fleetctl.views.objects import View, mapping, why

# More bars than a screen has lines would scroll; the rest is counted in words.
BARS_MAX = 20
REFRESH_PER_S = 8
# Bar, time and the gaps between; then phase and counts, and what is left is for the rest.
FIXED_CELLS, NAME_CELLS_MAX, EXTRA_CELLS_MAX, EXTRA_CELLS_MIN = 16 + 7 + 4, 28, 60, 8


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
        self._columns = console.width
        whole = Column(no_wrap=True, overflow="ellipsis")
        self._progress = Progress(
            TextColumn("{task.description}", markup=False, table_column=whole),
            BarColumn(bar_width=16),
            TextColumn("{task.fields[progress]}", markup=False, table_column=Column(no_wrap=True)),
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
        shown = views[:BARS_MAX]
        name_cells = min(max((width(safe(it.key)) for it in shown), default=0), NAME_CELLS_MAX)
        for view in shown:
            uid = view.resource.uid
            if uid not in self._bars:
                self._bars[uid] = self._progress.add_task(
                    shorten(safe(view.key), NAME_CELLS_MAX), total=None, progress=""
                )
            total = view.status.get("total")
            self._progress.update(
                self._bars[uid],
                completed=view.settled,
                total=total if isinstance(total, int) else None,
                progress=progress_text(view, self._columns - FIXED_CELLS - name_cells),
            )

    def close(self) -> None:
        self._progress.stop()


def progress_text(seen: View, cells: int) -> str:
    """What stands beside the bar: phase and counts, whatever the width, and in the cells that are
    left the best so far or why it stands still.
    """
    metric = mapping(seen.map("best").get("metric"))
    best = f"best {metric.get('name')}={scalar(metric.get('value'))}" if metric else ""
    if size := seen.count("frontSize"):
        best = f"front of {plural(size, seen.kind.unit)}"
    counts = f"{safe(seen.phase)}  {tally(seen)}"
    room = min(cells - width(counts) - 2, EXTRA_CELLS_MAX)
    extra = safe(best or ("" if seen.over else why(seen)))
    return f"{counts}  {shorten(extra, room)}" if extra and room >= EXTRA_CELLS_MIN else counts
