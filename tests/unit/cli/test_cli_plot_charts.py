"""What a picture shows: the right trials in the right order, on axes that fit their values."""

from __future__ import annotations

import math
from typing import cast
from xml.etree import ElementTree

import pytest

from fleetctl.cli.report.plot import needs_ascii
from fleetctl.views.plotting.charts import (
    EmptyChart,
    ParallelChart,
    PlaneChart,
    build_axis,
    build_best_so_far,
    build_front,
    build_importance,
    build_parallel,
)
from fleetctl.views.plotting.curves import (
    POINTS_MAX,
    EarlyStop,
    Rung,
    TaskCurve,
    metric_chart,
    rungs_chart,
    thin_points,
)
from fleetctl.views.plotting.gather import PickedAttempt, name_curves
from fleetctl.views.plotting.scales import LINEAR, LOG, WORDS, of_numbers, of_words
from fleetctl.views.plotting.trials import Study, build_trial, collect_columns, list_constants
from fleetctl.views.plotting.writers.svg import svg_file
from fleetctl.views.plotting.writers.terminal import draw_charts, make_style
from fleetctl.views.tasks import Task


def study(*scores: float | None, goal: str = "minimize", **params: list[object]) -> Study:
    """Trials that ended in the order of their indexes."""
    trials = tuple(
        build_trial(n, n, {name: values[n] for name, values in params.items()}, score)
        for n, score in enumerate(scores)
    )
    return Study("loss", goal, trials)


def test_the_best_so_far_only_gets_better_and_the_best_is_marked() -> None:
    chart = build_best_so_far(study(3.0, 2.0, 4.0, 1.0, 1.0, None))
    assert isinstance(chart, PlaneChart)
    assert [y for _, y in chart.lines[0].points] == [3.0, 2.0, 2.0, 1.0, 1.0]
    assert [dot.trial for dot in chart.dots if dot.best] == [3]  # the earliest of equals
    assert chart.note == "best loss 1 (trial 3); 1 finished trial without a score"


def test_trials_come_in_the_order_in_which_they_ended() -> None:
    ended = tuple(build_trial(n, -n, {}, float(n)) for n in range(3))
    chart = build_best_so_far(Study("loss", "maximize", ended))
    assert isinstance(chart, PlaneChart) and [dot.trial for dot in chart.dots] == [2, 1, 0]


def test_what_is_the_same_in_all_trials_has_no_axis_and_is_told() -> None:
    found = study(2.0, 1.0, lr=[0.1, 0.2], batch=[64, 64], net=[{"d": 1}, {"d": 2}])
    chart = build_parallel(found)
    assert isinstance(chart, ParallelChart)
    assert [scale.name for scale in chart.axes] == ["lr", "net.d", "loss"]
    assert chart.note == "best loss 1 (trial 1); the same in all: batch=64"
    assert list_constants(found.trials) == ["batch=64"]


def test_a_trial_without_a_parameter_has_no_place_on_its_axis() -> None:
    trials = (build_trial(0, 0, {"a": 1}, 1.0), build_trial(1, 1, {"a": 2, "b": 5}, 2.0),
              build_trial(2, 2, {"a": 3, "b": 6}, 3.0))  # fmt: skip
    chart = build_parallel(Study("loss", "minimize", trials))
    assert isinstance(chart, ParallelChart)
    assert [row.positions for row in chart.rows] == [(0.0, None, 0.0), (0.5, 0.0, 0.5), (1, 1, 1)]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([16, 32, 64, 128], LOG),
        ([1e-4, 1e-3, 1e-2], LOG),
        ([1, 2, 3, 4], LINEAR),
        ([0.1, 0.2, 0.3, 0.5], LINEAR),
        ([0, 1, 10, 100], LINEAR),
        (["a", "b"], WORDS),
        ([1, "auto"], WORDS),
        ([True, False], WORDS),
        ([[1, 2], [3]], WORDS),
        ([None, "x"], WORDS),
    ],
)
def test_an_axis_fits_the_values_that_a_search_lists(values: list[object], kind: str) -> None:
    found = study(*map(float, range(len(values))), p=values)
    assert build_axis(found, "p", collect_columns(found.trials)["p"]).kind == kind


def test_an_axis_is_as_the_search_draws_the_parameter() -> None:
    numbers = [n / 10 for n in range(1, 9)]
    found = study(*numbers, p=list(numbers))
    values = collect_columns(found.trials)["p"]
    assert build_axis(found._replace(logs=frozenset({"p"})), "p", values).kind == LOG
    skewed = study(*numbers, p=[1e-4 * 10 ** (n / 2) for n in range(8)])
    assert build_axis(skewed, "p", collect_columns(skewed.trials)["p"]).kind == LOG
    evenly = skewed._replace(evens=frozenset({"p"}))
    assert build_axis(evenly, "p", collect_columns(skewed.trials)["p"]).kind == LINEAR


@pytest.mark.parametrize(
    ("low", "high", "log", "texts"),
    [
        (0.0, 30.0, False, ["0", "10", "20", "30"]),
        (0.76, 0.97, False, ["0.8", "0.85", "0.9", "0.95"]),
        (1e-5, 0.1, True, ["1e-05", "0.0001", "0.001", "0.01", "0.1"]),
        (1e-9, 1.0, True, ["1e-09", "1e-07", "1e-05", "0.001", "0.1"]),
        (1.5, 11.0, True, ["2", "5", "10"]),
        (1e6 + 0.1, 1e6 + 0.4, False, ["1000000.1", "1000000.2", "1000000.3", "1000000.4"]),
    ],
)
def test_ticks_are_round_and_told_apart(
    low: float, high: float, log: bool, texts: list[str]
) -> None:
    assert [tick.text for tick in of_numbers("x", [low, high], log=log).ticks(5)] == texts


def test_a_parameter_of_whole_numbers_has_whole_ticks() -> None:
    found = study(1.0, 2.0, 3.0, depth=[2, 3, 5], rate=[0.1, 0.2, 0.3])
    depths = build_axis(found, "depth", collect_columns(found.trials)["depth"]).ticks(7)
    assert [tick.text for tick in depths] == ["2", "3", "4", "5"]
    rates = build_axis(found, "rate", collect_columns(found.trials)["rate"]).ticks(7)
    assert any("." in tick.text for tick in rates)


def test_words_keep_equal_distances() -> None:
    scale = of_words("kernel", ["rbf", "poly", "sigmoid", "rbf"])
    assert [(tick.text, tick.position) for tick in scale.ticks(9)] == [
        ("poly", 0.0), ("rbf", 0.5), ("sigmoid", 1.0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (study(), "no trial has finished yet"),
        (study(None), "no finished trial has a finite number as `loss`"),
        (study(math.nan, math.inf), "no finished trial has a finite number as `loss`"),
        (study(1.0)._replace(metric=""),
         "the search names no `metric`, so no trial is better than another"),
    ],
)  # fmt: skip
def test_where_nothing_can_be_drawn_it_says_why(found: Study, why: str) -> None:
    for make in (build_best_so_far, build_parallel, build_importance):
        assert make(found) == EmptyChart(make(found).title, why)


def test_an_attempt_takes_over_from_the_step_at_which_it_goes_on() -> None:
    curve = TaskCurve()
    curve.add([(0, 9.0, 1.0), (10, 8.0, 2.0), (20, 7.0, 3.0)])
    curve.add([(10, 5.0, 62.0), (15, None, 62.5), (20, 4.0, 63.0)])
    assert curve.points == [(0, 9.0), (10, 5.0), (20, 4.0)]
    assert metric_chart("loss", {"train": curve}, "").note == (
        "last loss 4 at step 20; restarted at step 10;"
        " 1 report without a finite number, from step 15"
    )


def test_a_curve_breaks_where_there_was_no_number_until_a_later_attempt_has_one() -> None:
    curve = TaskCurve()
    curve.add([(0, 9.0, 1.0), (1, 8.0, 2.0), (2, float("nan"), 3.0), (3, 7.0, 4.0), (4, 6.0, 5.0)])
    chart = metric_chart("loss", {"train": curve}, "")
    assert isinstance(chart, PlaneChart)
    assert chart.lines[0].pieces() == [[(0, 9.0), (1, 8.0)], [(3, 7.0), (4, 6.0)]]
    _, _, drawn = svg_file([chart], "x").partition('<path class="line s0" d="')
    assert drawn.partition('"')[0].count("M") == 2
    curve.add([(1, 8.0, 11.0), (2, 7.5, 12.0), (3, 7.0, 13.0)])
    chart = metric_chart("loss", {"train": curve}, "")
    assert isinstance(chart, PlaneChart) and len(chart.lines[0].pieces()) == 1


def test_a_curve_over_time_goes_on_after_a_restart() -> None:
    curve = TaskCurve("time", 1.0)
    curve.add([(0, 9.0, 1.0), (10, 8.0, 2.0), (20, 7.0, 3.0)])
    curve.add([(10, 5.0, 62.0), (20, 4.0, 63.0)])
    assert curve.points == [(0, 9.0), (61, 5.0), (62, 4.0)]
    chart = metric_chart("loss", {"train": curve}, "", over="time")
    assert isinstance(chart, PlaneChart)
    assert (chart.title, chart.x.name) == ("loss over time", "seconds")
    assert chart.note == "last loss 4 after 1m02s; restarted after 1m01s"
    assert chart.lines[0].restarts == ((61.0, 5.0),)


def test_a_long_curve_keeps_its_spikes_and_its_ends() -> None:
    points = [(float(n), 100.0 if n == 77_777 else 1.0) for n in range(100_000)]
    few = thin_points(points)
    assert len(few) <= POINTS_MAX and (77_777.0, 100.0) in few
    assert (few[0], few[-1]) == (points[0], points[-1])


@pytest.mark.parametrize(
    ("environ", "encoding", "colour", "ascii_only"),
    [
        ({"LANG": "en_US.UTF-8"}, "utf-8", True, False),
        ({}, "utf-8", True, False),
        ({"LANG": "en_US.UTF-8"}, "utf-8", False, True),
        ({"LANG": "C"}, "utf-8", True, True),
        ({"LC_ALL": "C", "LANG": "en_US.UTF-8"}, "utf-8", True, True),
        ({"LANG": "en_US.UTF-8"}, "latin-1", True, True),
    ],
)
def test_ascii_where_braille_would_not_be_read(
    environ: dict[str, str], encoding: str, colour: bool, ascii_only: bool
) -> None:
    assert needs_ascii(environ, encoding, colour=colour) is ascii_only


def test_the_front_is_marked_among_all_trials() -> None:
    loss, speed = (1.0, 2.0, 3.0, None), (1.0, 5.0, 4.0, 9.0)
    found = [study(*loss), study(*speed, goal="maximize")._replace(metric="speed")]
    chart = build_front(found)
    assert isinstance(chart, PlaneChart)
    assert [dot.trial for dot in chart.dots if dot.best] == [0, 1]
    assert [dot.trial for dot in chart.dots] == [0, 1, 2]
    assert chart.lines[0].points == ((1.0, 1.0), (2.0, 5.0))
    assert chart.note.startswith(
        "2 trials of 3 that no other one beats: 0, 1; better is lower loss"
    )
    assert "on the front" in "\n".join(
        draw_charts([chart], make_style(80, fine=False, colour=False))
    )
    assert 'class="dot best" data-trial="1"' in svg_file([chart], "x")


def test_a_front_needs_several_metrics_and_numbers_for_all() -> None:
    assert isinstance(build_front([study(1.0)]), EmptyChart)
    missing = build_front([study(None, 1.0), study(2.0, None)])
    assert isinstance(missing, EmptyChart) and "loss and loss" in missing.why


def test_who_was_stopped_stands_at_the_value_that_stopped_it() -> None:
    rungs = [Rung(3, 12, 0.6), Rung(9, 4, 0.25)]
    chart = rungs_chart("loss", rungs, [EarlyStop(7, 3, 0.9, "trial 7: value 0.9 at iteration 3")])
    assert isinstance(chart, PlaneChart)
    assert chart.lines[0].points == ((3.0, 0.6), (9.0, 0.25))
    assert [(dot.x, dot.y, dot.trial) for dot in chart.dots] == [(3.0, 0.9, 7)]
    assert chart.note == "came so far: 12 trials at 3, 4 trials at 9; stopped: trial 7 by 0.9 at 3"
    drawn = "\n".join(draw_charts([chart], make_style(80, fine=True, colour=False)))
    assert "what it takes to go on" in drawn and "best" not in drawn
    nobody = rungs_chart("loss", rungs[:1], [])
    assert isinstance(nobody, PlaneChart) and nobody.note.endswith("none is stopped")
    assert isinstance(rungs_chart("loss", [], []), EmptyChart)


def picked(*pairs: tuple[str, str]) -> list[PickedAttempt]:
    return [PickedAttempt(cast(Task, None), owner, unit) for owner, unit in pairs]


@pytest.mark.parametrize(
    ("pairs", "titles", "cut"),
    [
        ([("", "task 1"), ("", "task 2")], ["task 1", "task 2"], ""),
        ([("sweep/a", "trial 1"), ("sweep/b", "trial 1")], ["a", "b"], ""),
        ([("sweep/a", "trial 1"), ("batchjob/a", "task 1")], ["sweep/a", "batchjob/a"], ""),
        ([("sweep/a", "trial 1"), ("sweep/a", "trial 2"), ("sweep/b", "trial 1")],
         ["a trial 1", "a trial 2", "b trial 1"], ""),
        ([("sweep/a", "trial 1"), ("sweep/a -n team", "trial 1")], ["a", "a -n team"], ""),
        ([("tr/sft-lr-0001-batch-32", "x"), ("tr/sft-lr-0001-batch-64", "x")],
         ["32", "64"], "sft-lr-0001-batch-"),
        ([("tr/abcdefghijklmnopqrs1", "x"), ("tr/abcdefghijklmnopqrs2", "x")],
         ["abcdefghijklmnopqrs1", "abcdefghijklmnopqrs2"], ""),
    ],
)  # fmt: skip
def test_curves_are_named_by_what_tells_them_apart(
    pairs: list[tuple[str, str]], titles: list[str], cut: str
) -> None:
    assert name_curves(picked(*pairs)) == (dict(zip(pairs, titles, strict=True)), cut)


def test_a_legend_of_many_curves_is_below_the_drawing() -> None:
    curves = {}
    for n in range(8):
        curve = curves[f"a-training-with-name-{n}"] = TaskCurve()
        curve.add([(step, float(n), 1.0) for step in range(3)])
    chart = metric_chart("loss", curves, "")
    root = ElementTree.fromstring(svg_file([chart], "x"))
    words = root.iter("{http://www.w3.org/2000/svg}text")
    placed = [text for text in words if (text.text or "").startswith("a-training")]
    assert len(placed) == 8 and all(float(text.attrib["x"]) > 0 for text in placed)
    assert len({(text.attrib["x"], text.attrib["y"]) for text in placed}) == 8
