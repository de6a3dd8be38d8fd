"""A grid of characters to draw dots and lines on: eight dots a cell in Braille, or one in ASCII.

Called by terminal. Where two inks meet in a cell, the higher one shows.
"""

from __future__ import annotations

from typing import NamedTuple

BRAILLE = 0x2800
# The bit of a Braille character for column x, row y of its cell.
BITS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))


class Ink(NamedTuple):
    """A colour. glyph: its mark in ASCII; code: its colour, as in ESC [ code m."""

    height: int
    glyph: str
    code: str


class Canvas:
    """A grid of cells. fine: Braille instead of ASCII. colour: inks differ by colour as well."""

    def __init__(
        self,
        wide: int,
        high: int,
        *,
        fine: bool,
        colour: bool,
    ) -> None:
        self.wide = wide
        self.high = high
        self.fine = fine
        self.colour = colour
        self.dots_wide = wide * (2 if fine else 1)
        self.dots_high = high * (4 if fine else 1)
        self._bits = [[0] * wide for _ in range(high)]
        self._ink: list[list[Ink | None]] = [[None] * wide for _ in range(high)]
        self._text = [[""] * wide for _ in range(high)]

    def at(self, x: float, y: float) -> tuple[int, int]:
        """Returns the dot at a position; (0, 0) is at the lower left, (1, 1) at the upper right."""
        column = round(min(max(x, 0.0), 1.0) * (self.dots_wide - 1))
        return column, self.dots_high - 1 - round(min(max(y, 0.0), 1.0) * (self.dots_high - 1))

    def dot(
        self,
        x: int,
        y: int,
        ink: Ink,
    ) -> None:
        column, row = (x // 2, y // 4) if self.fine else (x, y)
        old = self._ink[row][column]
        if old is None or ink.height >= old.height:
            self._ink[row][column] = ink
        self._bits[row][column] |= BITS[x % 2][y % 4] if self.fine else 1

    def line(
        self,
        start: tuple[int, int],
        end: tuple[int, int],
        ink: Ink,
    ) -> None:
        """Draws every dot between the two, both included."""
        (x, y), (to_x, to_y) = start, end
        steps = max(abs(to_x - x), abs(to_y - y), 1)
        for n in range(steps + 1):
            self.dot(x + round((to_x - x) * n / steps), y + round((to_y - y) * n / steps), ink)

    def mark(
        self,
        x: int,
        y: int,
        char: str,
        ink: Ink,
    ) -> None:
        """Draws one character over the content of the dot's cell."""
        column, row = (x // 2, y // 4) if self.fine else (x, y)
        self._text[row][column], self._ink[row][column] = char, ink

    def write(
        self,
        column: int,
        row: int,
        text: str,
    ) -> None:
        """Draws a word over the drawing, as far as there is room; plain, and of narrow
        characters."""
        for at, char in enumerate(text[: max(0, self.wide - column)], column):
            self._text[row][at], self._ink[row][at] = char, None

    def lines(self) -> list[str]:
        return [self._row(row) for row in range(self.high)]

    def _row(self, row: int) -> str:
        out = []
        code = ""
        for column in range(self.wide):
            ink = self._ink[row][column]
            char = self._text[row][column]
            if not char and self._bits[row][column] and ink is not None:
                char = chr(BRAILLE + self._bits[row][column]) if self.fine else ink.glyph
            wanted = ink.code if ink is not None and char and self.colour else ""
            if wanted != code:
                out.append(
                    f"\x1b[{wanted or 0}m" if not code or not wanted else f"\x1b[0;{wanted}m"
                )
                code = wanted
            out.append(char or " ")
        return "".join(out).rstrip() + ("\x1b[0m" if code else "")
