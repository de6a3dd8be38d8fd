"""Runs in the box before drawing code: `python3 chart_runner.py <file> [argument...]`.

`matplotlib.pyplot.show` then prints each figure as one marked line of JSON, which the emulator
takes out of the output. Needs nothing but the matplotlib that the code itself uses.
"""

import base64
import contextlib
import io
import json
import runpy
import sys

MARK = "\x1edaytona-chart:"


def series(label, points):
    return {"label": str(label), "points": [[float(x), float(y)] for x, y in points]}


def elements_of(axes):
    """(type, elements): the first kind of drawing that is there."""
    from matplotlib.container import BarContainer
    from matplotlib.patches import Wedge

    if getattr(axes, "_daytona_boxes", None):
        return "box_and_whisker", axes._daytona_boxes
    wedges = [patch for patch in axes.patches if isinstance(patch, Wedge)]
    if wedges:
        pieces = [
            {"label": w.get_label(), "angle": float(w.theta2 - w.theta1), "radius": float(w.r)}
            for w in wedges
        ]
        return "pie", pieces
    bars = []
    for group in (c for c in axes.containers if isinstance(c, BarContainer)):
        labels = [tick.get_text() for tick in axes.get_xticklabels()]
        for number, bar in enumerate(group.patches):
            label = labels[number] if number < len(labels) else str(number)
            name = str(group.get_label())
            bars.append({"label": label, "value": str(bar.get_height()), "group": name})
    if bars:
        return "bar", bars
    if axes.lines:
        return "line", [series(line.get_label(), line.get_xydata()) for line in axes.lines]
    if axes.collections:
        return "scatter", [series(one.get_label(), one.get_offsets()) for one in axes.collections]
    return "unknown", []


def chart_of(axes):
    kind, elements = elements_of(axes)
    chart = {
        "type": kind,
        "title": axes.get_title(),
        "elements": elements,
        "x_label": axes.get_xlabel(),
        "y_label": axes.get_ylabel(),
    }
    if kind in ("line", "scatter"):
        for side in ("x", "y"):
            chart[side + "_ticks"] = [float(t) for t in getattr(axes, f"get_{side}ticks")()]
            labels = getattr(axes, f"get_{side}ticklabels")()
            chart[side + "_tick_labels"] = [label.get_text() for label in labels]
            chart[side + "_scale"] = getattr(axes, f"get_{side}scale")()
    return chart


def show(*_args, **_kwargs):
    from matplotlib import pyplot

    for number in pyplot.get_fignums():
        figure = pyplot.figure(number)
        picture = io.BytesIO()
        figure.savefig(picture, format="png")
        charts = [chart_of(axes) for axes in figure.axes]
        if len(charts) == 1:
            chart = charts[0]
        else:
            chart = {"type": "composite_chart", "title": "", "elements": charts}
        chart["png"] = base64.b64encode(picture.getvalue()).decode()
        print(MARK + json.dumps(chart), flush=True)
    pyplot.close("all")


def prepare():
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import axes, pyplot

    drawn = axes.Axes.bxp

    def bxp(self, bxpstats, *args, **kwargs):
        self._daytona_boxes = [
            {
                "label": str(one.get("label", "")),
                "min": float(one["whislo"]),
                "first_quartile": float(one["q1"]),
                "median": float(one["med"]),
                "third_quartile": float(one["q3"]),
                "max": float(one["whishi"]),
                "outliers": [float(value) for value in one["fliers"]],
            }
            for one in bxpstats
        ]
        return drawn(self, bxpstats, *args, **kwargs)

    axes.Axes.bxp = bxp
    pyplot.show = show


with contextlib.suppress(ImportError):  # the code will say so itself, where it imports it
    prepare()
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
