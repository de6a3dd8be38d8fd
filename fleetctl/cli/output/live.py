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
BAR_CELLS, NARROW_BAR_CELLS, TIME_CELLS, GAP_CELLS = 16, 8, 7, 4
NARROW_COLUMNS, NAME_CELLS_MAX, EXTRA_CELLS_MAX, EXTRA_CELLS_MIN = 80, 28, 60, 8


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
        narrow = console.width < NARROW_COLUMNS
        bar_cells = NARROW_BAR_CELLS if narrow else BAR_CELLS
        # rich would take what lacks from every column alike, also from the time.
        self._text_cells = console.width - bar_cells - TIME_CELLS - GAP_CELLS
        self._name_cells_max = max(1, min(NAME_CELLS_MAX, self._text_cells // (3 if narrow else 1)))
        whole = Column(no_wrap=True, overflow="ellipsis")
        self._progress = Progress(
            TextColumn("{task.description}", markup=False, table_column=whole),
            BarColumn(bar_width=bar_cells),
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
        widest = max((width(safe(it.key)) for it in shown), default=0)
        room = max(1, self._text_cells - min(widest, self._name_cells_max))
        for view in shown:
            uid = view.resource.uid
            if uid not in self._bars:
                self._bars[uid] = self._progress.add_task(
                    shorten(safe(view.key), self._name_cells_max), total=None, progress=""
                )
            total = view.status.get("total")
            self._progress.update(
                self._bars[uid],
                completed=view.settled,
                total=total if isinstance(total, int) else None,
                progress=shorten(progress_text(view, room), room),
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
