"""Charts as a PNG. The only user of matplotlib; loaded only for `-o file.png`."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from fleetctl.common.errors import Refused
from fleetctl.common.install import install_hint
from fleetctl.common.text import shorten_text
from fleetctl.views.plotting.charts import (
    NAMED_MAX,
    BarChart,
    Chart,
    EmptyChart,
    ParallelChart,
    PlaneChart,
)
from fleetctl.views.plotting.scales import WORDS, AxisScale

INCHES_WIDE = 9.0
INCHES_HIGH = 3.6
DOTS_PER_INCH = 160
BAR_INCHES = 0.28
TITLE_INCHES = 0.9
NOTHING_INCHES = 0.7
INK = "#1c2430"
QUIET = "#5c6878"
GRID = "#e4e8ee"
ACCENT = "#0f7b8a"
BEST = "#d9480f"
SHADES = ("#0f7b8a", "#4f9fb0", "#93b9c6", "#bfccd6", "#d7dee6")
SERIES = ("#0f7b8a", "#c2410c", "#7048b6", "#2f8f3a", "#2563c9", "#b4236b", "#8a6d00", "#576574")
LABEL_POINTS = 10  # between a name and its bar
TICKS = 7
NOTE_CHARS = 125


def render_png(charts: Sequence[Chart], heading: str) -> bytes:
    """Draws the charts. Raises Refused where matplotlib is not installed."""
    try:
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise Refused(
            "a PNG needs matplotlib, which is not installed",
            hint=f"{install_hint('plot')}, or take a .svg or .html",
        ) from error
    # Names of parameters are text, not formulas, whatever dollars are in them.
    settings = {"font.size": 9, "text.parse_math": False, "axes.unicode_minus": False}
    with matplotlib.rc_context(settings):
        heights = [_measure_inches(chart) for chart in charts]
        figure: Any = Figure(
            figsize=(INCHES_WIDE, sum(heights) + 0.4),
            dpi=DOTS_PER_INCH,
            layout="constrained",
        )
        FigureCanvasAgg(figure)
        figure.suptitle(
            heading,
            x=0.01,
            ha="left",
            color=INK,
            weight="bold",
            size=13,
        )
        figure.get_layout_engine().set(h_pad=0.12, hspace=0.03)
        grid = figure.subplots(len(charts), squeeze=False, height_ratios=heights)
        for axes, chart in zip(grid[:, 0], charts, strict=True):
            _draw_chart(axes, chart)
        out = io.BytesIO()
        figure.savefig(out, format="png", facecolor="white")
    return out.getvalue()


def _measure_inches(chart: Chart) -> float:
    if isinstance(chart, EmptyChart):
        return NOTHING_INCHES
    if isinstance(chart, BarChart):
        return TITLE_INCHES + BAR_INCHES * len(chart.bars)
    return INCHES_HIGH


def _draw_chart(axes: Any, chart: Chart) -> None:
    axes.set_title(
        chart.title,
        loc="left",
        color=INK,
        weight="bold",
        size=10.5,
    )
    axes.tick_params(colors=QUIET, length=3)
    for side in axes.spines.values():
        side.set_visible(False)
    if isinstance(chart, EmptyChart):
        axes.set_axis_off()
        axes.text(
            0,
            0.5,
            chart.why,
            color=QUIET,
            transform=axes.transAxes,
        )
        return
    if isinstance(chart, PlaneChart):
        _draw_plane(axes, chart)
    elif isinstance(chart, ParallelChart):
        _draw_parallel(axes, chart)
    else:
        _draw_bars(axes, chart)
    axes.set_xlabel(
        _wrap_note(chart.note),
        color=QUIET,
        size=8,
        loc="left",
    )


def _wrap_note(note: str) -> str:
    import textwrap

    return "\n".join(textwrap.wrap(note, NOTE_CHARS))


def _draw_plane(axes: Any, chart: PlaneChart) -> None:
    many = len(chart.lines) > 1 or not chart.dots
    for n, line in enumerate(chart.lines):
        colour = SERIES[n % len(SERIES)] if many else ACCENT
        for at, piece in enumerate(line.pieces()):
            x = [chart.x.position(a) for a, _ in piece]
            y = [chart.y.position(b) for _, b in piece]
            axes.plot(
                x,
                y,
                color=colour,
                linewidth=1.5,
                label="_" if at else line.name,
                drawstyle="steps-post" if line.step else "default",
                marker="o" if len(x) == 1 else None,
            )
        if line.restarts:
            axes.scatter(
                [chart.x.position(a) for a, _ in line.restarts],
                [chart.y.position(b) for _, b in line.restarts],
                marker="D",
                s=26,
                facecolors="white",
                edgecolors=colour,
                linewidths=1.4,
                zorder=3,
            )
    _draw_dots(axes, chart)

    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.spines["bottom"].set(visible=True, color=QUIET)
    axes.grid(
        axis="y",
        color=GRID,
        linewidth=0.8,
    )
    axes.set_axisbelow(True)
    axes.set_xticks(*_list_ticks(chart.x))
    axes.set_yticks(*_list_ticks(chart.y))
    axes.set_ylabel(shorten_text(chart.y.title, 40), color=INK)
    axes.annotate(
        shorten_text(chart.x.title, 60), (1, 0), (0, -18), xycoords="axes fraction",
        textcoords="offset points", ha="right", va="top", color=INK,
    )  # fmt: skip
    if len(chart.lines) > 1:
        axes.legend(
            frameon=False,
            labelcolor=INK,
            fontsize=8,
            ncols=min(4, len(chart.lines)),
        )


def _draw_dots(axes: Any, chart: PlaneChart) -> None:
    """Draws all dots at once, as 10,000 trials would take half a minute one by one; the best one
    over them."""
    spots = [(chart.x.position(dot.x), chart.y.position(dot.y)) for dot in chart.dots]
    edge = {
        "edgecolors": "white",
        "linewidths": 0.8,
        "clip_on": False,  # whole at the frame, too
    }
    if spots:
        across, up = zip(*spots, strict=True)
        axes.scatter(
            across,
            up,
            s=16,
            color=ACCENT,
            alpha=0.6,
            zorder=3,
            **edge,
        )

    best = [it for it in zip(spots, chart.dots, strict=True) if it[1].best]
    for spot, dot in best:
        axes.scatter(
            *spot,
            s=60,
            color=BEST,
            zorder=4,
            **edge,
        )
        if len(best) <= NAMED_MAX:
            left = spot[0] > 0.8
            axes.annotate(
                f"trial {dot.trial}", spot, (-6 if left else 6, 6), textcoords="offset points",
                ha="right" if left else "left", color=BEST, weight="bold", zorder=5,
            )  # fmt: skip


def _list_ticks(scale: AxisScale) -> tuple[list[float], list[str]]:
    ticks = scale.ticks(TICKS)
    return [tick.position for tick in ticks], [shorten_text(tick.text, 14) for tick in ticks]


def _draw_parallel(axes: Any, chart: ParallelChart) -> None:
    for height, row in enumerate(reversed(chart.rows)):
        best = row is chart.rows[0]
        shade = SHADES[min(int(row.rank * len(SHADES)), len(SHADES) - 1)]
        # Not a number breaks the line, which is what a missing value should do.
        places = [float("nan") if place is None else place for place in row.positions]
        axes.plot(
            range(len(places)),
            places,
            color=BEST if best else shade,
            linewidth=2.4 if best else 1.0,
            zorder=2 + height / (len(chart.rows) + 1),
        )

    box = {"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 0.8}
    for n, scale in enumerate(chart.axes):
        axes.axvline(
            n,
            color=QUIET,
            linewidth=0.9,
            zorder=4,
        )
        for tick in scale.ticks(TICKS) if scale.kind != WORDS else scale.ticks(0):
            axes.text(
                n + 0.03,
                tick.position,
                shorten_text(tick.text, 14),
                size=7.5,
                color=INK,
                va="center",
                zorder=5,
                bbox=box,
            )

    axes.set_xlim(-0.1, len(chart.axes) - 1 + 0.35)
    axes.set_ylim(-0.05, 1.05)
    axes.set_yticks([])
    titles = [shorten_text(scale.title, max(8, 90 // len(chart.axes))) for scale in chart.axes]
    axes.set_xticks(range(len(titles)), titles, color=INK)
    axes.tick_params(axis="x", length=0)


def _draw_bars(axes: Any, chart: BarChart) -> None:
    names = [shorten_text(bar.name, 26) for bar in chart.bars]
    shares = [bar.share or 0.0 for bar in chart.bars]
    colours = [SHADES[3] if bar.remark == "within chance" else ACCENT for bar in chart.bars]
    places = range(len(names))
    axes.barh(places, [1.0] * len(names), color="#f0f3f7", height=0.62)
    axes.barh(places, shares, color=colours, height=0.62)
    for place, bar in zip(places, chart.bars, strict=True):
        percent = "?" if bar.share is None else f"{bar.share:.0%}"
        axes.text(
            1.015,
            place,
            f"{percent}  {bar.remark}",
            va="center",
            color=INK,
            size=8.5,
        )
    axes.set_yticks(places, names, color=INK)
    axes.tick_params(length=0, pad=LABEL_POINTS)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.28)
    axes.set_xticks([])
