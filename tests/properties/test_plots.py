"""Whatever trials there are, every picture is drawn or says why not, in its width, and safely."""

from __future__ import annotations

from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from fleetctl.common.text import cell_width, escape_line
from fleetctl.views.plotting.charts import (
    KINDS,
    Chart,
    EmptyChart,
    ParallelChart,
    PlaneChart,
    build_charts,
)
from fleetctl.views.plotting.curves import TaskCurve, metric_chart
from fleetctl.views.plotting.trials import Study, build_trial
from fleetctl.views.plotting.writers.svg import html_page, svg_file
from fleetctl.views.plotting.writers.terminal import draw_charts, make_style

names = st.sampled_from(["lr", "batch", "net", "a b"]) | st.text(max_size=6)
numbers = st.integers() | st.floats() | st.sampled_from([0.0, 1e-300, 1e308, -1e308, 10**400])
values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(max_size=50),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2),
    max_leaves=4,
)
scores = st.none() | st.floats() | st.integers() | st.sampled_from([1.0, 2.0]) | st.text(max_size=2)
params = st.dictionaries(names, values, max_size=4)
steps = st.integers(min_value=-(2**40), max_value=2**40)
reports = st.lists(st.tuples(steps, st.none() | st.floats()), max_size=20)


@st.composite
def studies(draw_from: st.DrawFn) -> Study:
    found = draw_from(st.lists(st.tuples(params, scores), max_size=14))
    names_of = frozenset(draw_from(st.sets(names, max_size=2)))
    return Study(
        escape_line(draw_from(st.text(max_size=8))),
        draw_from(st.sampled_from(["minimize", "maximize"])),
        tuple(build_trial(n, float(n % 3), given, score) for n, (given, score) in enumerate(found)),
        logs=names_of,
        evens=frozenset(draw_from(st.sets(names, max_size=2))),
    )


def shown(charts: list[Chart], columns: int) -> None:
    for fine in (False, True):
        lines = draw_charts(charts, make_style(columns, fine=fine, colour=False))
        assert all(cell_width(line) <= max(columns, 40) for line in lines)
        assert all(escape_line(line) == line for line in lines)
        assert fine or "".join(lines).isascii()
    ElementTree.fromstring(svg_file(charts, "x"))
    assert html_page(charts, "x", "").endswith("</html>\n")


@given(found=studies(), columns=st.integers(min_value=20, max_value=120))
def test_any_study_is_drawn_or_says_why_not(found: Study, columns: int) -> None:
    charts = build_charts(found, KINDS)
    for chart in charts:
        if isinstance(chart, PlaneChart):
            assert len(chart.dots) == len(found.scored)
            assert sum(dot.best for dot in chart.dots) == 1
        elif isinstance(chart, ParallelChart):
            places = [p for row in chart.rows for p in row.positions if p is not None]
            assert places and all(-1e-9 <= p <= 1 + 1e-9 for p in places)
        elif isinstance(chart, EmptyChart):
            assert chart.why
    shown(charts, columns)


@given(attempts=st.lists(st.lists(reports, min_size=1, max_size=3), max_size=10))
def test_any_reports_are_drawn_or_say_why_not(
    attempts: list[list[list[tuple[int, float | None]]]],
) -> None:
    curves = {f"task {n}": TaskCurve() for n in range(len(attempts))}
    for n, runs in enumerate(attempts):
        for run in runs:
            curves[f"task {n}"].add((step, value, 0.0) for step, value in run)
        steps_of = [x for x, _ in curves[f"task {n}"].points]
        assert steps_of == sorted(set(steps_of))
    shown([metric_chart("loss", curves, "")], 80)
