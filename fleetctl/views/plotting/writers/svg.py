"""Charts as SVG, shapes with classes whose colours are in chart.css, and as one self-contained HTML
file. Pure.

It can be read without a mouse (arrow keys go from trial to trial, best first; sliders choose ranges
of axes), without colours (every trial is in a table), and follows the light or dark of the system.
chart.js does that; the page of `fleetctl serve` loads the same file.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from html import escape
from pathlib import Path

from fleetctl.common.text import shorten_text
from fleetctl.views.plotting.charts import (
    NAMED_MAX,
    BarChart,
    Chart,
    ChartLine,
    EmptyChart,
    ParallelChart,
    PlaneChart,
)
from fleetctl.views.plotting.scales import WORDS, AxisScale, AxisTick, format_number

WIDE = 860.0
HIGH = 340.0
LEFT = 72.0
RIGHT = 28.0
TOP = 34.0
BOTTOM = 46.0
BAR_HIGH = 30.0
BAR_LEFT = 190.0
BAR_RIGHT = 220.0
TITLE_HIGH = 34.0
NOTE_HIGH = 20.0
NOTE_CHARS = 110
TICKS_X = 8
TICKS_Y = 6
REACH = 26.0  # wide enough for a finger
SHADES, SERIES = 5, 8  # as chart.css has them
NAME_CHARS = 18
LEGEND_WIDE = 560.0  # beside the name of the vertical axis
LEGEND_COLUMNS = 4  # of a legend below the drawing
LEGEND_HIGH = 18.0
WORD_CHARS = 14
STYLE = Path(__file__).with_name("chart.css")

HERE = Path(__file__).parent
# The browser itself enforces it on the page: it loads no resource, sends no data, and runs no
# script but the one whose sum is there.
POLICY = "default-src 'none'; style-src {style}; script-src {script}"
HOW = "point at a trial, or use the arrow keys in a drawing; Escape releases it"
BIND = "bindCharts(document.querySelector('main'));\n"


def svg_file(charts: Sequence[Chart], heading: str) -> str:
    """Returns a whole file: the charts below each other, with their titles and notes."""
    parts = [_format_text(LEFT / 3, 28, heading, "heading")]
    y = 48.0
    for chart in charts:
        note = chart.why if isinstance(chart, EmptyChart) else chart.note
        parts.append(_format_text(LEFT / 3, y + 20, chart.title, "title"))
        parts.append(f'<g transform="translate(0 {y + TITLE_HIGH - 8:g})">{draw_shapes(chart)}</g>')
        y += TITLE_HIGH + measure_height(chart)
        for line in _wrap_note(note):
            parts.append(_format_text(LEFT / 3, y + 6, line, "note"))
            y += NOTE_HIGH
        y += 14
    return _make_file(parts, y, heading)


def chart_file(chart: Chart) -> str:
    """Returns a whole file of one chart alone, without its title and its note."""
    return _make_file([draw_shapes(chart)], measure_height(chart), chart.title)


def _make_file(parts: Sequence[str], height: float, heading: str) -> str:
    style = STYLE.read_text(encoding="utf-8")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE:g} {height:g}" '
        f'width="{WIDE:g}" height="{height:g}" font-family="system-ui, sans-serif" '
        'font-size="12">\n'
        f"<title>{escape(heading)}</title>\n<style>\n{style}</style>\n"
        f'<rect class="paper" width="{WIDE:g}" height="{height:g}"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def measure_height(chart: Chart) -> float:
    if isinstance(chart, EmptyChart):
        return 4.0
    if isinstance(chart, BarChart):
        return BAR_HIGH * len(chart.bars) + 16
    if isinstance(chart, PlaneChart):
        names = [line.name for line in chart.lines]
        return HIGH if _fits_above(names) else HIGH + LEGEND_HIGH * -(-len(names) // LEGEND_COLUMNS)
    return HIGH - BOTTOM + 14  # no axis below


def draw_shapes(chart: Chart) -> str:
    """Returns the content of an <svg> of WIDE times height(chart)."""
    if isinstance(chart, PlaneChart):
        return "\n".join(_draw_plane(chart))
    if isinstance(chart, ParallelChart):
        return "\n".join(_draw_parallel(chart))
    if isinstance(chart, BarChart):
        return "\n".join(_draw_bars(chart))
    return ""


def _draw_plane(chart: PlaneChart) -> list[str]:
    out = [*_draw_y_axis(chart.y), *_draw_x_axis(chart.x)]
    many = len(chart.lines) > 1 or not chart.dots
    for n, line in enumerate(chart.lines):
        pieces = [[_locate_point(chart, *point) for point in piece] for piece in line.pieces()]
        path = "".join(_format_path(piece, step=line.step) for piece in pieces)
        out.append(f'<path class="line {f"s{n % SERIES}" if many else "step"}" d="{path}"/>')
        for x, y in (piece[0] for piece in pieces if len(piece) == 1):
            out.append(f'<circle class="dot s{n % SERIES}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>')
        out += [_draw_restart(chart, line, point, n) for point in line.restarts]
    named = sum(dot.best for dot in chart.dots) <= NAMED_MAX
    for dot in sorted(chart.dots, key=lambda dot: dot.best):
        x, y = _locate_point(chart, dot.x, dot.y)
        word, size = ("dot best", 6.5) if dot.best else ("dot", 3.5)
        out.append(
            f'<circle class="{word}" data-trial="{dot.trial}" cx="{x:.1f}" cy="{y:.1f}" '
            f'r="{size}"><title>{escape(dot.label)}</title></circle>'
        )
        if dot.best and named:
            # Beside and above: the line of the best so far continues to the right.
            side = ("end", x - 9) if x > WIDE * 0.8 else ("start", x + 9)
            out.append(
                _format_text(
                    side[1],
                    y - 9,
                    f"trial {dot.trial}",
                    "bestname",
                    side[0],
                )
            )
    return [
        *out,
        *(_draw_legend([line.name for line in chart.lines]) if len(chart.lines) > 1 else ()),
    ]


def _draw_restart(
    chart: PlaneChart,
    line: ChartLine,
    point: tuple[float, float],
    n: int,
) -> str:
    x, y = _locate_point(chart, *point)
    label = escape(f"{line.name} restarted at {chart.x.name} {format_number(point[0])}")
    return (
        f'<path class="restart s{n % SERIES}" d="M{x:.1f} {y - 5:.1f}l5 5l-5 5l-5 -5z">'
        f"<title>{label}</title></path>"
    )


def _locate_point(
    chart: PlaneChart,
    x: float,
    y: float,
) -> tuple[float, float]:
    return _scale_x(chart.x.position(x)), _scale_y(chart.y.position(y))


def _scale_x(place: float) -> float:
    return LEFT + place * (WIDE - LEFT - RIGHT)


def _scale_y(place: float) -> float:
    return HIGH - BOTTOM - place * (HIGH - TOP - BOTTOM)


def _draw_y_axis(scale: AxisScale) -> list[str]:
    """Draws the vertical axis: a faint line across at each tick, its value at the left."""
    out = [
        _format_text(
            LEFT - 8,
            TOP - 16,
            shorten_text(scale.title, 60),
            "axisname",
            "start",
        )
    ]
    for tick in _shorten_ticks(scale, TICKS_Y):
        y = _scale_y(tick.position)
        out.append(f'<path class="grid" d="M{LEFT:g} {y:.1f}H{WIDE - RIGHT:g}"/>')
        out.append(
            _format_text(
                LEFT - 8,
                y + 4,
                tick.text,
                "tick",
                "end",
            )
        )
    return out


def _draw_x_axis(scale: AxisScale) -> list[str]:
    base = HIGH - BOTTOM
    out = [f'<path class="axis" d="M{LEFT:g} {base:g}H{WIDE - RIGHT:g}"/>']
    for tick in _shorten_ticks(scale, TICKS_X):
        out.append(f'<path class="axis" d="M{_scale_x(tick.position):.1f} {base:g}v5"/>')
        out.append(
            _format_text(
                _scale_x(tick.position),
                base + 19,
                tick.text,
                "tick",
                "middle",
            )
        )
    return [
        *out,
        _format_text(
            WIDE - RIGHT,
            base + 37,
            shorten_text(scale.title, 60),
            "axisname",
            "end",
        ),
    ]


def _shorten_ticks(scale: AxisScale, most: int) -> list[AxisTick]:
    return [tick._replace(text=shorten_text(tick.text, WORD_CHARS)) for tick in scale.ticks(most)]


def _format_path(spots: Sequence[tuple[float, float]], *, step: bool) -> str:
    """Returns a path. A step goes to the right before it goes up or down."""
    (x, y), *rest = spots
    moves = [f"M{x:.1f} {y:.1f}"]
    moves += [f"H{x:.1f}V{y:.1f}" if step else f"L{x:.1f} {y:.1f}" for x, y in rest]
    return "".join(moves)


def _fits_above(names: Sequence[str]) -> bool:
    """Returns true where the legend has room beside the vertical axis' name."""
    return len(names) < 2 or sum(7 * min(len(it), NAME_CHARS) + 36 for it in names) <= LEGEND_WIDE


def _draw_legend(names: Sequence[str]) -> list[str]:
    """Draws names at the upper right, from right to left, so that they never run over the axis'
    name; below the drawing where there is no room for all."""
    out = []
    if not _fits_above(names):
        step = (WIDE - LEFT - RIGHT) / LEGEND_COLUMNS
        for n, name in enumerate(names):
            x = LEFT + n % LEGEND_COLUMNS * step
            y = HIGH + 12 + n // LEGEND_COLUMNS * LEGEND_HIGH
            out.append(f'<path class="line s{n % SERIES}" d="M{x:g} {y - 4:g}h15"/>')
            out.append(_format_text(x + 21, y, shorten_text(name, NAME_CHARS), "tick"))
        return out
    x = WIDE - RIGHT
    for n, name in reversed(list(enumerate(names))):
        text = shorten_text(name, NAME_CHARS)
        x -= 7 * len(text) + 6
        out.append(_format_text(x, TOP - 16, text, "tick"))
        out.append(f'<path class="line s{n % SERIES}" d="M{x - 20:g} {TOP - 20:g}h15"/>')
        x -= 30
    return out


def _draw_parallel(chart: ParallelChart) -> list[str]:
    """Draws the best trials last, over the others."""
    left = 40.0
    right = WIDE - 92.0
    gap = (right - left) / max(len(chart.axes) - 1, 1)
    at = [left + n * gap for n in range(len(chart.axes))]
    out = []
    for row in reversed(chart.rows):
        shade = "best" if row is chart.rows[0] else f"r{min(int(row.rank * SHADES), SHADES - 1)}"
        out.append(
            f'<path class="row {shade}" data-trial="{row.trial}" '
            f'd="{_format_thread(row.positions, at)}">'
            f"<title>{escape(row.label)}</title></path>"
        )
    chars = max(4, int(gap / 7.2))
    for n, (x, scale) in enumerate(zip(at, chart.axes, strict=True)):
        last = n == len(chart.axes) - 1
        name = shorten_text(scale.title, chars)
        out.append(f'<path class="axis" d="M{x:.1f} {_scale_y(0):g}V{_scale_y(1):g}"/>')
        anchor = "start" if n == 0 else "middle"
        out.append(
            _format_text(
                x - 24 if n == 0 else x,
                TOP - 16,
                name,
                "axisname",
                anchor,
            )
        )
        out += [
            part
            for tick in _shorten_ticks(scale, TICKS_Y)
            for part in _draw_tick(x, tick, chars=WORD_CHARS if last else chars - 2)
        ]
        if scale.kind != WORDS and scale.low == scale.high:
            out.append(
                _format_text(x + 7, _scale_y(0.5) + 4, format_number(scale.low), "tick halo")
            )
        else:
            out.append(_draw_reach(x, scale))
    return out


def _draw_reach(x: float, scale: AxisScale) -> str:
    """Draws the part of an axis where chart.js lets a range be chosen, with the values that its
    positions stand for."""
    ends = f'data-first="{scale.low!r}" data-last="{scale.high!r}"'
    if scale.kind == WORDS:
        ends = f'data-words="{escape(json.dumps(scale.words))}"'
    top = _scale_y(1)
    high = _scale_y(0) - top
    box = f'x="{x - REACH / 2:.1f}" width="{REACH:g}" rx="4"'
    # A drag may begin a little beyond the ends of the axis.
    hand = f'y="{top - REACH / 2:g}" height="{high + REACH:g}"'
    return (
        f'<g class="reach" data-axis="{escape(scale.name)}" data-kind="{scale.kind}" '
        f'data-x="{x:.1f}" data-top="{top:g}" data-high="{high:g}" {ends}>'
        f'<rect class="brush" {box} y="{top:g}" height="0"/>'
        f'<rect class="hand" {box} {hand}/></g>'
    )


def _draw_tick(
    x: float,
    tick: AxisTick,
    *,
    chars: int,
) -> list[str]:
    y = _scale_y(tick.position)
    text = shorten_text(tick.text, max(3, chars))
    return [
        f'<path class="axis" d="M{x - 3:.1f} {y:.1f}h6"/>',
        _format_text(x + 7, y + 4, text, "tick halo"),
    ]


def _format_thread(places: Sequence[float | None], at: Sequence[float]) -> str:
    """Draws from axis to axis; broken where the trial has no value, a dash where it stands
    alone."""
    moves = []
    pen = "M"
    for n, (x, place) in enumerate(zip(at, places, strict=True)):
        if place is None:
            pen = "M"
            continue
        moves.append(f"{pen}{x:.1f} {_scale_y(place):.1f}")
        after = places[n + 1] if n + 1 < len(places) else None
        if pen == "M" and after is None:
            moves.append("h6")
        pen = "L"
    return "".join(moves)


def _draw_bars(chart: BarChart) -> list[str]:
    room = WIDE - BAR_LEFT - BAR_RIGHT
    out = []
    for n, bar in enumerate(chart.bars):
        y = n * BAR_HIGH + 10
        share = bar.share or 0.0
        word = "bar faint" if bar.remark == "within chance" else "bar"
        percent = f"{share:.0%}" if bar.share is not None else "?"
        out.append(
            _format_text(
                BAR_LEFT - 10,
                y + 15,
                shorten_text(bar.name, 26),
                "axisname",
                "end",
            )
        )
        out.append(
            f'<rect class="rail" x="{BAR_LEFT:g}" y="{y:g}" width="{room:g}" height="20" rx="3"/>'
        )
        if share:
            wide = max(share * room, 2)
            out.append(
                f'<rect class="{word}" x="{BAR_LEFT:g}" y="{y:g}" width="{wide:.1f}" '
                'height="20" rx="3"/>'
            )
        out.append(
            _format_text(
                BAR_LEFT + room + 48,
                y + 15,
                percent,
                "percent",
                "end",
            )
        )
        out.append(_format_text(BAR_LEFT + room + 60, y + 15, bar.remark, "tick"))
    return out


def _wrap_note(note: str) -> list[str]:
    import textwrap

    return textwrap.wrap(note, NOTE_CHARS)


def _format_text(
    x: float,
    y: float,
    text: str,
    word: str,
    anchor: str = "start",
) -> str:
    place = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text class="{word}" x="{x:.1f}" y="{y:.1f}"{place}>{escape(text)}</text>'


def html_page(
    charts: Sequence[Chart],
    heading: str,
    summary: str,
) -> str:
    trials = any('data-trial="' in draw_shapes(chart) for chart in charts)
    message = f'<output id="told" aria-live="polite">{HOW}</output>' if trials else ""
    drawings = "\n".join(_render_figure(chart) for chart in charts)
    body = f"{message}\n{drawings}{_render_table(charts)}"
    return wrap_page(heading, summary, body, script=_read_file("chart.js") + BIND)


def wrap_page(
    heading: str,
    summary: str,
    body: str,
    *,
    script: str = "",
) -> str:
    """Returns a whole page. body: HTML; heading and summary: texts."""
    style = "\n" + _read_file("chart.css") + _read_file("page.css")
    script = f"\n{script}" if script else ""
    code = f'<script type="module">{script}</script>\n' if script else ""
    policy = POLICY.format(style=_sum_source(style), script=_sum_source(script))
    return (
        '<!doctype html>\n<html lang="en" class="charts">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(heading)}</title>\n<style>{style}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{escape(heading)}</h1>\n<p>{escape(summary)}</p>\n{body}"
        f"\n</main>\n{code}</body>\n</html>\n"
    )


def _sum_source(text: str) -> str:
    """Returns how a policy names an inline style or script: by its sum, and nothing by 'none'."""
    if not text:
        return "'none'"
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _render_figure(chart: Chart) -> str:
    title = escape(chart.title)
    if isinstance(chart, EmptyChart):
        return f"<h2>{title}</h2>\n<p>{escape(chart.why)}</p>"
    heading = title
    if isinstance(chart, BarChart):
        heading += ": " + ", ".join(
            f"{bar.name} {'unknown' if bar.share is None else f'{bar.share:.0%}'}"
            for bar in chart.bars
        )
    return (
        f'<h2>{title}</h2>\n<figure tabindex="0" aria-label="{escape(heading)}">\n'
        f'<svg viewBox="0 0 {WIDE:g} {measure_height(chart):g}" '
        f'aria-hidden="true">\n{draw_shapes(chart)}\n'
        f"</svg>\n<figcaption>{escape(chart.note)}</figcaption>\n</figure>"
    )


def _render_table(charts: Sequence[Chart]) -> str:
    """Returns every trial that is drawn, best first."""
    rows = next((chart.rows for chart in charts if isinstance(chart, ParallelChart)), ())
    if not rows:
        return ""
    lines = "\n".join(
        f'<tr data-trial="{row.trial}"><td>{at}</td><td>{escape(row.label)}</td></tr>'
        for at, row in enumerate(rows, 1)
    )
    return (
        f'\n<details class="trials"><summary>All {len(rows)} trials, best first</summary>\n'
        f'<div class="scroll" tabindex="0"><table><tr><th>rank</th><th>trial</th></tr>\n{lines}\n'
        "</table></div></details>"
    )


def _read_file(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")
