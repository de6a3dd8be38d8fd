"""Charts as lines of text of a given width: Braille and colours, or plain ASCII. Pure.

Nothing is told by colour alone: the best trial has a mark of its own, and in ASCII every sort of
line has another character.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fleetctl.cli.report.plotting.canvas import Canvas, Ink
from fleetctl.cli.report.plotting.charts import Bars, Chart, Line, Nothing, Parallel, Plane
from fleetctl.cli.report.plotting.scales import WORDS, Scale, number
from fleetctl.common.text import pad, shorten, width

COLUMNS_MIN, COLUMNS_MAX = 40, 200
ROWS_MIN, ROWS_MAX = 6, 24
ROWS = 12  # of the drawing, where nothing says how high the screen is
AXIS_COLUMNS_MIN = 13  # between two axes: a name and a gap
WORD_COLUMNS_MAX = 9  # of a value that is written beside its axis
NAME_COLUMNS_MAX = 24
BAR_COLUMNS_MIN = 8
TICKS_Y, TICK_COLUMNS_X = 5, 14
GOOD = 0.25  # the share of trials that stands out in parallel coordinates

FRAME = Ink(0, "", "2")
REST = Ink(1, ".", "2")
STEP = Ink(2, "-", "36")
UPPER = Ink(3, "o", "36")
TOP = Ink(9, "@", "1;33")
# Lines that are told apart, in the order of their names.
SERIES = tuple(
    Ink(2 + n, glyph, code)
    for n, (glyph, code) in enumerate(
        zip("*+ox#%&~", ("36", "33", "35", "32", "34", "31", "96", "93"), strict=True)
    )
)


class Look(NamedTuple):
    """columns, rows: of one drawing. fine: Braille and box characters instead of ASCII."""

    columns: int
    rows: int
    fine: bool
    colour: bool

    def canvas(self, columns: int) -> Canvas:
        return Canvas(columns, self.rows, fine=self.fine, colour=self.colour)

    def paint(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and text else text

    def cut(self, text: str, columns: int) -> str:
        """Of texts in the drawing: narrow characters only, as a grid has one cell for each."""
        narrow = "".join(c if width(c) == 1 else "?" for c in text)
        if not self.fine:
            narrow = narrow.encode("ascii", "replace").decode()
        if len(narrow) <= columns:
            return narrow
        return shorten(narrow, columns) if self.fine else narrow[: columns - 1] + "~"


def look(columns: int, rows: int = ROWS, *, fine: bool, colour: bool) -> Look:
    wide = min(max(columns, COLUMNS_MIN), COLUMNS_MAX)
    return Look(wide, min(max(rows, ROWS_MIN), ROWS_MAX), fine, colour)


def draw(charts: Sequence[Chart], look: Look) -> list[str]:
    """The charts below each other, an empty line between two."""
    lines: list[str] = []
    for chart in charts:
        lines += [*([""] if lines else []), *_one(chart, look)]
    return lines


def _one(chart: Chart, look: Look) -> list[str]:
    title = look.paint(look.cut(chart.title, look.columns), "1")
    if isinstance(chart, Nothing):
        return [title, *_wrapped(chart.why, look)]
    drawn = (
        _plane(chart, look)
        if isinstance(chart, Plane)
        else _parallel(chart, look)
        if isinstance(chart, Parallel)
        else _bars(chart, look)
    )
    return [title, *drawn, *_wrapped(chart.note, look)]


def _wrapped(text: str, look: Look) -> list[str]:
    import textwrap

    plain = text if look.fine else text.encode("ascii", "replace").decode()
    # textwrap counts characters; where some take two cells, all are given two.
    cells = 1 if width(plain) <= len(plain) else 2
    lines = textwrap.wrap(plain, (look.columns - 2) // cells, break_on_hyphens=False)
    return [look.paint(f"  {line}", "2") for line in lines]


def _plane(chart: Plane, look: Look) -> list[str]:
    ticks = {_row(t.place, look): look.cut(t.text, 10) for t in chart.y.ticks(TICKS_Y)}
    margin = max(map(len, ticks.values()))
    canvas = look.canvas(look.columns - margin - 2)
    for n, line in enumerate(chart.lines):
        _trace(canvas, chart, line, STEP if chart.dots else SERIES[n % len(SERIES)])
    for dot in sorted(chart.dots, key=lambda dot: dot.best):
        x, y = canvas.at(chart.x.place(dot.x), chart.y.place(dot.y))
        char = ("★" if look.fine else TOP.glyph) if dot.best else ("•" if look.fine else "o")
        canvas.mark(x, y, char, TOP if dot.best else UPPER)
    bar, tick = ("│", "┤") if look.fine else ("|", "+")
    lines = [
        look.paint(f"{ticks.get(row, ''):>{margin}} {tick if row in ticks else bar}", "2") + drawn
        for row, drawn in enumerate(canvas.lines())
    ]
    lines = [f"{' ' * margin} {look.cut(chart.y.title, look.columns - margin - 2)}", *lines]
    return [*lines, *_below(chart.x, canvas.wide, margin, look), *_legend(chart, look)]


def _trace(canvas: Canvas, chart: Plane, line: Line, ink: Ink) -> None:
    """The line as dots of the canvas; a step goes to the right before it goes up or down."""
    for piece in line.pieces():
        before: tuple[int, int] | None = None
        for x, y in piece:
            here = canvas.at(chart.x.place(x), chart.y.place(y))
            if before is not None and line.step:
                corner = (here[0], before[1])
                canvas.line(before, corner, ink)
                before = corner
            canvas.line(before or here, here, ink)
            before = here


def _below(x: Scale, columns: int, margin: int, look: Look) -> list[str]:
    """The horizontal axis: its line, the values at its ticks, its name at the right."""
    dash, joint, corner = ("─", "┬", "└") if look.fine else ("-", "+", "+")
    line, words = [dash] * columns, [" "] * columns
    free = 0
    name = look.cut(x.title, columns // 2)
    for tick in x.ticks(max(2, columns // TICK_COLUMNS_X)):
        at = round(tick.place * (columns - 1))
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


def _legend(chart: Plane, look: Look) -> list[str]:
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
    return _flowing(parts, look)


def _flowing(parts: Sequence[tuple[str, str]], look: Look) -> list[str]:
    """Words with their colours, in as many lines as they take."""
    if not parts:
        return []
    lines, used = [""], 0
    for text, code in parts:
        if used and used + len(text) + 2 > look.columns:
            lines, used = [*lines, ""], 0
        lines[-1] += "  " + look.paint(text, code)
        used += len(text) + 2
    return lines


def _row(place: float, look: Look) -> int:
    return look.rows - 1 - round(place * (look.rows - 1))


def _parallel(chart: Parallel, look: Look) -> list[str]:
    """Axes at equal distances; those that do not fit, the least important, are told below."""
    fits = max(2, (look.columns - AXIS_COLUMNS_MIN) // AXIS_COLUMNS_MIN + 1)
    left = max(0, len(chart.axes) - fits)
    axes = chart.axes[left:]
    canvas = look.canvas(look.columns)
    spread = (look.columns - WORD_COLUMNS_MAX - 3) // max(len(axes) - 1, 1)
    at = [1 + n * spread for n in range(len(axes))]
    for row in reversed(chart.rows):
        ink = TOP if row is chart.rows[0] else UPPER if row.rank <= GOOD else REST
        _thread(canvas, row.places[left:], at, ink)
    for column, scale in zip(at, axes, strict=True):
        _axis(canvas, column, scale, look)
    names, room = [" "] * look.columns, min(spread, NAME_COLUMNS_MAX) - 1
    for column, scale in zip(at, axes, strict=True):
        name = look.cut(scale.title, min(room, look.columns - column))
        names[column : column + len(name)] = name
    lines = ["".join(names).rstrip(), *canvas.lines()]
    key = [("@ best", TOP), ("o best quarter", UPPER), (". others", REST)]
    if look.fine:
        key = [(f"━ {text[2:]}", ink) for text, ink in key]
    lines.append("  " + "  ".join(look.paint(text, ink.code) for text, ink in key))
    if left:
        hidden = ", ".join(scale.name for scale in chart.axes[:left])
        lines += _wrapped(f"no room here for {hidden}", look)
    return lines


def _thread(canvas: Canvas, places: Sequence[float | None], at: Sequence[int], ink: Ink) -> None:
    """From axis to axis; broken where the trial has no value."""
    before: tuple[int, int] | None = None
    for column, place in zip(at, places, strict=True):
        here = None
        if place is not None:
            _, y = canvas.at(0.0, place)
            here = (column * (2 if canvas.fine else 1), y)
            canvas.line(before or here, here, ink)
        before = here


def _axis(canvas: Canvas, column: int, scale: Scale, look: Look) -> None:
    """The axis and its values: of numbers the ends, of words as many as there are rows for."""
    for row in range(look.rows):
        canvas.mark(*_cell(canvas, column, row), "│" if look.fine else "|", FRAME)
    ends = [(1.0, number(scale.high)), (0.0, number(scale.low))]
    if scale.kind == WORDS:
        ends = [(tick.place, tick.text) for tick in scale.ticks(look.rows)]
    elif scale.low == scale.high:
        ends = [(0.5, number(scale.low))]
    taken: set[int] = set()
    for place, text in ends:
        row = _row(place, look)
        if row not in taken:
            canvas.write(column + 1, row, look.cut(text, WORD_COLUMNS_MAX))
            taken.add(row)


def _cell(canvas: Canvas, column: int, row: int) -> tuple[int, int]:
    return (column * 2, row * 4) if canvas.fine else (column, row)


def _bars(chart: Bars, look: Look) -> list[str]:
    names = [look.cut(bar.name, min(NAME_COLUMNS_MAX, look.columns // 4)) for bar in chart.bars]
    margin = max(map(len, names))
    left = look.columns - margin - len("   100%    ")
    remarks = min(max(len(bar.remark) for bar in chart.bars), left - BAR_COLUMNS_MIN)
    room = left - remarks
    lines = []
    for name, bar in zip(names, chart.bars, strict=True):
        share = bar.share or 0.0
        filled = pad(_bar(share, room, look), room)
        code = "2" if bar.remark == "within chance" else "36"
        percent = f"{share:4.0%}" if bar.share is not None else "   ?"
        lines.append(
            f"  {name:<{margin}}  {look.paint(filled, code)} {percent}  "
            f"{look.cut(bar.remark, remarks)}".rstrip()
        )
    return lines


def _bar(share: float, room: int, look: Look) -> str:
    if not look.fine:
        return "#" * round(share * room)
    eighths = round(share * room * 8)
    whole, part = divmod(eighths, 8)
    return "█" * whole + (" ▏▎▍▌▋▊▉"[part] if part else "")
