"""Charts as lines of text of a given width, on a grid of characters: Braille and colours, or plain
ASCII. Pure.

Colour is never the only mark: the best trial has a mark of its own, and in ASCII every sort of line
has another character. Where two inks meet in a cell, the higher one shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fleetctl.common.text import cell_width, pad_cells, shorten_text
from fleetctl.views.plotting.charts import (
    BarChart,
    Chart,
    ChartLine,
    EmptyChart,
    ParallelChart,
    PlaneChart,
)
from fleetctl.views.plotting.scales import WORDS, AxisScale, format_number

BRAILLE = 0x2800
# The bit of a Braille character for column x, row y of its cell.
BITS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))

COLUMNS_MIN = 40
COLUMNS_MAX = 200
ROWS_MIN = 6
ROWS_MAX = 24
ROWS = 12  # of the drawing, where the height of the screen is unknown
AXIS_COLUMNS_MIN = 13  # between two axes: a name and a gap
WORD_COLUMNS_MAX = 9  # of a value that is written beside its axis
NAME_COLUMNS_MAX = 24
BAR_COLUMNS_MIN = 8
TICKS_Y = 5
TICK_COLUMNS_X = 14
GOOD = 0.25  # the share of trials that stands out in parallel coordinates


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


FRAME = Ink(0, "", "2")
REST = Ink(1, ".", "2")
STEP = Ink(2, "-", "36")
UPPER = Ink(3, "o", "36")
TOP = Ink(9, "@", "1;33")
RESTART = Ink(9, "R", "1")
# Lines that differ in style, in the order of their names.
SERIES = tuple(
    Ink(2 + n, glyph, code)
    for n, (glyph, code) in enumerate(
        zip("*+ox#%&~", ("36", "33", "35", "32", "34", "31", "96", "93"), strict=True)
    )
)


class TerminalStyle(NamedTuple):
    """The size and characters. columns, rows: of a drawing. fine: Braille and box characters
    instead of ASCII."""

    columns: int
    rows: int
    fine: bool
    colour: bool

    def canvas(self, columns: int) -> Canvas:
        return Canvas(columns, self.rows, fine=self.fine, colour=self.colour)

    def paint(self, text: str, code: str) -> str:
        if self.colour and text:
            return f"\x1b[{code}m{text}\x1b[0m"
        return text

    def cut(self, text: str, columns: int) -> str:
        """Cuts texts in the drawing: narrow characters only, as a grid has one cell for each."""
        narrow = "".join(c if cell_width(c) == 1 else "?" for c in text)
        if not self.fine:
            narrow = narrow.encode("ascii", "replace").decode()
        if len(narrow) <= columns:
            return narrow
        if self.fine:
            return shorten_text(narrow, columns)
        return narrow[: columns - 1] + "~"


def make_style(
    columns: int,
    rows: int = ROWS,
    *,
    fine: bool,
    colour: bool,
) -> TerminalStyle:
    wide = min(max(columns, COLUMNS_MIN), COLUMNS_MAX)
    return TerminalStyle(wide, min(max(rows, ROWS_MIN), ROWS_MAX), fine, colour)


def draw_charts(charts: Sequence[Chart], look: TerminalStyle) -> list[str]:
    """Draws the charts below each other, an empty line between two."""
    lines: list[str] = []
    for chart in charts:
        lines += [*([""] if lines else []), *_draw_chart(chart, look)]
    return lines


def _draw_chart(chart: Chart, look: TerminalStyle) -> list[str]:
    title = look.paint(look.cut(chart.title, look.columns), "1")
    if isinstance(chart, EmptyChart):
        return [title, *_wrap_text(chart.why, look)]
    drawn = (
        _draw_plane(chart, look)
        if isinstance(chart, PlaneChart)
        else _draw_parallel(chart, look)
        if isinstance(chart, ParallelChart)
        else _draw_bars(chart, look)
    )
    return [title, *drawn, *_wrap_text(chart.note, look)]


def _wrap_text(text: str, look: TerminalStyle) -> list[str]:
    import textwrap

    plain = text if look.fine else text.encode("ascii", "replace").decode()
    # textwrap counts characters; where some take two cells, all are given two.
    cells = 1 if cell_width(plain) <= len(plain) else 2
    lines = textwrap.wrap(plain, (look.columns - 2) // cells, break_on_hyphens=False)
    return [look.paint(f"  {line}", "2") for line in lines]


def _draw_plane(chart: PlaneChart, look: TerminalStyle) -> list[str]:
    ticks = {_find_row(t.position, look): look.cut(t.text, 10) for t in chart.y.ticks(TICKS_Y)}
    margin = max(map(len, ticks.values()))
    canvas = look.canvas(look.columns - margin - 2)
    for n, line in enumerate(chart.lines):
        _trace_line(canvas, chart, line, STEP if chart.dots else SERIES[n % len(SERIES)])

    for line in chart.lines:
        for point in line.restarts:
            x, y = canvas.at(chart.x.position(point[0]), chart.y.position(point[1]))
            canvas.mark(x, y, _restart_char(look), RESTART)

    best, other = ("★", "•") if look.fine else (TOP.glyph, "o")
    for dot in sorted(chart.dots, key=lambda dot: dot.best):
        x, y = canvas.at(chart.x.position(dot.x), chart.y.position(dot.y))
        if dot.best:
            canvas.mark(x, y, best, TOP)
        else:
            canvas.mark(x, y, other, UPPER)

    title = look.cut(chart.y.title, look.columns - margin - 2)
    lines = [f"{' ' * margin} {title}"]
    bar, tick = ("│", "┤") if look.fine else ("|", "+")
    for row, drawn in enumerate(canvas.lines()):
        label = ticks.get(row, "")
        edge = tick if row in ticks else bar
        lines.append(look.paint(f"{label:>{margin}} {edge}", "2") + drawn)

    lines += _draw_x_axis(chart.x, canvas.wide, margin, look)
    lines += _draw_legend(chart, look)
    return lines


def _trace_line(
    canvas: Canvas,
    chart: PlaneChart,
    line: ChartLine,
    ink: Ink,
) -> None:
    """Draws the line as dots of the canvas; a step goes to the right before it goes up or down."""
    for piece in line.pieces():
        before: tuple[int, int] | None = None
        for x, y in piece:
            here = canvas.at(chart.x.position(x), chart.y.position(y))
            if before is not None and line.step:
                corner = (here[0], before[1])
                canvas.line(before, corner, ink)
                before = corner
            canvas.line(before or here, here, ink)
            before = here


def _draw_x_axis(
    x: AxisScale,
    columns: int,
    margin: int,
    look: TerminalStyle,
) -> list[str]:
    """Draws the horizontal axis: its line, the values at its ticks, its name at the right."""
    dash, joint, corner = ("─", "┬", "└") if look.fine else ("-", "+", "+")
    line = [dash] * columns
    words = [" "] * columns
    free = 0
    name = look.cut(x.title, columns // 2)
    for tick in x.ticks(max(2, columns // TICK_COLUMNS_X)):
        at = round(tick.position * (columns - 1))
        text = look.cut(tick.text, 12)
        start = min(max(at - len(text) // 2, 0), columns - len(text))
        line[at] = joint
        if start >= free and start + len(text) < columns - len(name) - 1:
            words[start : start + len(text)] = text
            free = start + len(text) + 1
    words[columns - len(name) :] = name
    return [
        look.paint(f"{' ' * margin} {corner}{''.join(line)}", "2"),
        f"{' ' * margin}  {''.join(words)}",
    ]


def _draw_legend(chart: PlaneChart, look: TerminalStyle) -> list[str]:
    parts = []
    if chart.dots:
        chars = "★•━" if look.fine else f"{TOP.glyph}{UPPER.glyph}{STEP.glyph}"
        names = zip(chars, chart.names, (TOP, UPPER, STEP), strict=True)
        parts = [(f"{char} {name}", ink.code) for char, name, ink in names if name]
    elif len(chart.lines) > 1:
        for n, line in enumerate(chart.lines):
            ink = SERIES[n % len(SERIES)]
            char = "━" if look.fine else ink.glyph
            parts.append((f"{char} {look.cut(line.name, NAME_COLUMNS_MAX)}", ink.code))
    if any(line.restarts for line in chart.lines):
        parts.append((f"{_restart_char(look)} restart", RESTART.code))
    return _flow_words(parts, look)


def _restart_char(look: TerminalStyle) -> str:
    return "◆" if look.fine else RESTART.glyph


def _flow_words(parts: Sequence[tuple[str, str]], look: TerminalStyle) -> list[str]:
    """Returns words with their colours, in as many lines as they take."""
    if not parts:
        return []
    lines = [""]
    used = 0
    for text, code in parts:
        if used and used + len(text) + 2 > look.columns:
            lines = [*lines, ""]
            used = 0
        lines[-1] += "  " + look.paint(text, code)
        used += len(text) + 2
    return lines


def _find_row(place: float, look: TerminalStyle) -> int:
    return look.rows - 1 - round(place * (look.rows - 1))


def _draw_parallel(chart: ParallelChart, look: TerminalStyle) -> list[str]:
    """Draws axes at equal distances; those that do not fit, the least important, are named
    below."""
    fits = max(2, (look.columns - AXIS_COLUMNS_MIN) // AXIS_COLUMNS_MIN + 1)
    left = max(0, len(chart.axes) - fits)
    axes = chart.axes[left:]
    canvas = look.canvas(look.columns)
    spread = (look.columns - WORD_COLUMNS_MAX - 3) // max(len(axes) - 1, 1)
    at = [1 + n * spread for n in range(len(axes))]

    for row in reversed(chart.rows):
        ink = UPPER if row.rank <= GOOD else REST
        if row is chart.rows[0]:
            ink = TOP
        _draw_thread(canvas, row.positions[left:], at, ink)
    for column, scale in zip(at, axes, strict=True):
        _draw_axis(canvas, column, scale, look)

    names = [" "] * look.columns
    room = min(spread, NAME_COLUMNS_MAX) - 1
    for column, scale in zip(at, axes, strict=True):
        name = look.cut(scale.title, min(room, look.columns - column))
        names[column : column + len(name)] = name

    lines = ["".join(names).rstrip(), *canvas.lines()]
    key = [
        ("@ best", TOP),
        ("o best quarter", UPPER),
        (". others", REST),
    ]
    if look.fine:
        key = [(f"━ {text[2:]}", ink) for text, ink in key]
    lines.append("  " + "  ".join(look.paint(text, ink.code) for text, ink in key))
    if left:
        hidden = ", ".join(scale.name for scale in chart.axes[:left])
        lines += _wrap_text(f"no room here for {hidden}", look)
    return lines


def _draw_thread(
    canvas: Canvas,
    places: Sequence[float | None],
    at: Sequence[int],
    ink: Ink,
) -> None:
    """Draws from axis to axis; broken where the trial has no value."""
    before: tuple[int, int] | None = None
    for column, place in zip(at, places, strict=True):
        here = None
        if place is not None:
            _, y = canvas.at(0.0, place)
            here = (column * (2 if canvas.fine else 1), y)
            canvas.line(before or here, here, ink)
        before = here


def _draw_axis(
    canvas: Canvas,
    column: int,
    scale: AxisScale,
    look: TerminalStyle,
) -> None:
    """Draws the axis and its values: for numbers the ends, for words as many as there are rows."""
    for row in range(look.rows):
        canvas.mark(*_locate_cell(canvas, column, row), "│" if look.fine else "|", FRAME)
    ends = [(1.0, format_number(scale.high)), (0.0, format_number(scale.low))]
    if scale.kind == WORDS:
        ends = [(tick.position, tick.text) for tick in scale.ticks(look.rows)]
    elif scale.low == scale.high:
        ends = [(0.5, format_number(scale.low))]
    taken: set[int] = set()
    for place, text in ends:
        row = _find_row(place, look)
        if row not in taken:
            canvas.write(column + 1, row, look.cut(text, WORD_COLUMNS_MAX))
            taken.add(row)


def _locate_cell(
    canvas: Canvas,
    column: int,
    row: int,
) -> tuple[int, int]:
    if canvas.fine:
        return (column * 2, row * 4)
    return (column, row)


def _draw_bars(chart: BarChart, look: TerminalStyle) -> list[str]:
    names = [look.cut(bar.name, min(NAME_COLUMNS_MAX, look.columns // 4)) for bar in chart.bars]
    margin = max(map(len, names))
    left = look.columns - margin - len("   100%    ")
    remarks = min(max(len(bar.remark) for bar in chart.bars), left - BAR_COLUMNS_MIN)
    room = left - remarks
    lines = []
    for name, bar in zip(names, chart.bars, strict=True):
        share = bar.share or 0.0
        filled = pad_cells(_draw_bar(share, room, look), room)
        code = "2" if bar.remark == "within chance" else "36"
        percent = f"{share:4.0%}" if bar.share is not None else "   ?"
        lines.append(
            f"  {name:<{margin}}  {look.paint(filled, code)} {percent}  "
            f"{look.cut(bar.remark, remarks)}".rstrip()
        )
    return lines


def _draw_bar(
    share: float,
    room: int,
    look: TerminalStyle,
) -> str:
    if not look.fine:
        return "#" * round(share * room)
    eighths = round(share * room * 8)
    whole, part = divmod(eighths, 8)
    return "█" * whole + (" ▏▎▍▌▋▊▉"[part] if part else "")
