"""A table that is redrawn, for `get -w` on a terminal. Loads rich, and only there."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.live import Live
from rich.text import Text

from fleetctl.cli.output.screen import Screen

# For the cursor's own line and the line on hidden rows.
SPARE_LINES = 2


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
