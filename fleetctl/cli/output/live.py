"""Displays that change on a terminal: the objects of `apply --wait`, and the table of `get -w`.
Only this module loads rich.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column
from rich.text import Text

from fleetctl.cli.output.screen import Screen
from fleetctl.common.text import cell_width, count_noun, escape_line, format_scalar, shorten_text
from fleetctl.views.goals import format_tally
from fleetctl.views.objects import View, as_mapping, explain_status

# More bars than a screen has lines would scroll; the rest is counted in words.
BARS_MAX = 20
REFRESH_PER_S = 8
# Bar, time and the gaps between; then phase and counts, and what is left is for the rest.
BAR_CELLS = 16
NARROW_BAR_CELLS = 8
TIME_CELLS = 7
GAP_CELLS = 4
NARROW_COLUMNS = 80
NAME_CELLS_MAX = 28
EXTRA_CELLS_MAX = 60
EXTRA_CELLS_MIN = 8

# For the cursor's own line and the line on hidden rows.
SPARE_LINES = 2


class LiveProgress:
    """A bar for each object, redrawn on stderr."""

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
        widest = max((cell_width(escape_line(it.key)) for it in shown), default=0)
        room = max(1, self._text_cells - min(widest, self._name_cells_max))
        for view in shown:
            uid = view.resource.uid
            if uid not in self._bars:
                self._bars[uid] = self._progress.add_task(
                    shorten_text(escape_line(view.key), self._name_cells_max),
                    total=None,
                    progress="",
                )
            total = view.status.get("total")
            self._progress.update(
                self._bars[uid],
                completed=view.settled,
                total=total if isinstance(total, int) else None,
                progress=shorten_text(progress_text(view, room), room),
            )

    def close(self) -> None:
        self._progress.stop()


def progress_text(seen: View, cells: int) -> str:
    """Returns the text beside the bar: phase and counts, whatever the width, and in the cells that
    are left the best so far or why it stands still.
    """
    metric = as_mapping(seen.map("best").get("metric"))
    best = f"best {metric.get('name')}={format_scalar(metric.get('value'))}" if metric else ""
    if size := seen.count("frontSize"):
        best = f"front of {count_noun(size, seen.kind.unit)}"
    counts = f"{escape_line(seen.phase)}  {format_tally(seen)}"
    room = min(cells - cell_width(counts) - 2, EXTRA_CELLS_MAX)
    extra = escape_line(best or ("" if seen.over else explain_status(seen)))
    if extra and room >= EXTRA_CELLS_MIN:
        return f"{counts}  {shorten_text(extra, room)}"
    return counts


class RedrawnLines:
    """Lines on stdout that the next ones replace; the last ones stay at the end."""

    def __init__(self, screen: Screen) -> None:
        self._console = Console(
            file=screen.out,
            force_terminal=True,  # the caller has made sure
            color_system="standard" if screen.out_colour else None,
            markup=False,
            highlight=False,
            emoji=False,
            soft_wrap=False,
        )
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            vertical_overflow="crop",
        )
        screen.flush()

    def __enter__(self) -> RedrawnLines:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    def show(self, lines: Sequence[str]) -> None:
        """Shows a header and its rows; of too many the newest, which are the last."""
        shown = fit_lines(lines, self._console.height)
        text = Text.from_ansi("\n".join(shown), no_wrap=True, overflow="ellipsis")
        self._live.update(text, refresh=True)


def fit_lines(lines: Sequence[str], height: int) -> list[str]:
    """Returns the header, how many rows are above, and as many of the last ones as there is room
    for."""
    if len(lines) <= max(height - 1, 1):
        return list(lines)
    room = max(height - 1 - SPARE_LINES, 1)
    hidden = len(lines) - 1 - room
    return [lines[0], f"... {hidden} more above", *lines[-room:]]
