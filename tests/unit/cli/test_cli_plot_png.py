"""What `-o file.png` writes, and what is said where matplotlib is not installed."""

from __future__ import annotations

import io
import sys

import pytest
from matplotlib.image import imread

from fleetctl.common.errors import Refused
from fleetctl.common.install import install_hint
from fleetctl.views.plotting.charts import KINDS, build_charts
from fleetctl.views.plotting.curves import metric_chart
from fleetctl.views.plotting.writers.png import DOTS_PER_INCH, INCHES_WIDE, render_png
from tests.golden.plots.plot_studies import curves, support_vectors


def test_a_png_shows_every_chart_with_the_best_trial_in_its_colour() -> None:
    charts = build_charts(support_vectors(), KINDS)
    picture = imread(io.BytesIO(render_png(charts, "sweep/digits")), format="png")
    assert picture.shape[1] == INCHES_WIDE * DOTS_PER_INCH
    assert picture.shape[0] > len(KINDS) * 200
    red, green, blue = (picture[:, :, n] * 255 for n in range(3))
    # #d9480f: one dot and its name in the first chart, one line in the second.
    assert ((abs(red - 0xD9) < 4) & (abs(green - 0x48) < 4) & (abs(blue - 0x0F) < 4)).sum() > 500


def test_a_name_stands_apart_from_its_bar() -> None:
    picture = imread(
        io.BytesIO(render_png(build_charts(support_vectors(), ["importance"]), "sweep/digits"))
    )
    bars = abs(picture[:, :, 0] * 255 - 0x0F) < 4
    rows = bars.sum(axis=1) > 100
    left = int(bars[rows].any(axis=0).argmax())
    ink = (picture[rows][:, : left - 1, :3] < 0.6).any(axis=(0, 2))
    assert left - ink.nonzero()[0].max() >= 15


def test_dollars_in_a_name_are_no_formula() -> None:
    chart = metric_chart("$\\frac$", curves(("$a_{", "task 1")), "costs $1 or $2")
    assert render_png([chart], "job/x").startswith(b"\x89PNG")


def test_without_matplotlib_the_command_that_installs_it_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(Refused, match="needs matplotlib") as refused:
        render_png([], "sweep/x")
    assert refused.value.hint == f"{install_hint('plot')}, or take a .svg or .html"
