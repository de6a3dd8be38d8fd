"""Computes the content of a sweep's plots: best so far, front, parallel coordinates, importance.

Called by gather.py. Pure. Each text in a chart is safe for terminals, and not yet escaped for HTML.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from fleetctl.common.text import and_more, count_noun
from fleetctl.controllers.history.scores import ParetoFront, sign_value
from fleetctl.views.plotting.scales import (
    LINEAR,
    AxisScale,
    format_number,
    looks_geometric,
    looks_skewed,
    of_numbers,
    of_words,
    widen_scale,
)
from fleetctl.views.plotting.trials import (
    MAXIMIZE,
    TRIALS_MIN,
    PlottedTrial,
    Study,
    Value,
    collect_columns,
    compute_importances,
    format_params,
    list_constants,
)

BEST = "best"
PARALLEL = "parallel"
IMPORTANCE = "importance"
KINDS = (BEST, PARALLEL, IMPORTANCE)  # of plots that show one metric
FRONT = "front"
RUNGS = "rungs"

# More lines are a solid block on any screen, and a page of many megabytes.
ROWS_MAX = 1000
# An axis needs room for its name; the least important ones are left out.
AXES_MAX = 12
CONSTANTS_MAX = 6
FEW_VALUES = 6  # at most so many distinct values are taken for a list of choices
NAMED_MAX = 8  # dots with a name in a drawing; more names would cover each other


class ChartDot(NamedTuple):
    """A dot of a chart. trial: its index; -1 for a dot of no trial. best: drawn as the best."""

    x: float
    y: float
    trial: int
    label: str
    best: bool = False


class ChartLine(NamedTuple):
    """A line of a chart. step: it is level until the next point. gaps: the x values at which there
    was no number, ascending. restarts: the points at which a later attempt took over.
    """

    name: str
    points: tuple[tuple[float, float], ...]
    step: bool = False
    gaps: tuple[float, ...] = ()
    restarts: tuple[tuple[float, float], ...] = ()

    def pieces(self) -> list[list[tuple[float, float]]]:
        """Returns the line in parts that cross no gap, each with at least one point."""
        found: list[list[tuple[float, float]]] = []
        for point in self.points:
            gap = bisect_right(self.gaps, found[-1][-1][0]) if found else 0
            if not found or (gap < len(self.gaps) and self.gaps[gap] < point[0]):
                found.append([])
            found[-1].append(point)
        return found


class PlaneChart(NamedTuple):
    """Lines and dots over two axes. names: for the legend, of the best dots, of the other dots and
    of the line beneath them; "" for a kind that the chart does not have.
    """

    title: str
    note: str
    x: AxisScale
    y: AxisScale
    lines: tuple[ChartLine, ...]
    dots: tuple[ChartDot, ...] = ()
    names: tuple[str, str, str] = ("best", "trial", "best so far")


class ParallelRow(NamedTuple):
    """A trial as a line across the axes. rank: from 0, the best, to 1. positions: where the line
    meets each axis, from 0 to 1; None for a missing value.
    """

    trial: int
    rank: float
    positions: tuple[float | None, ...]
    label: str


class ParallelChart(NamedTuple):
    """A chart of parallel coordinates. The last axis is the score; the axis before it is the most
    important parameter. Rows are in order, best first.
    """

    title: str
    note: str
    axes: tuple[AxisScale, ...]
    rows: tuple[ParallelRow, ...]


class ChartBar(NamedTuple):
    """A bar for one parameter. share: of the differences in score, from 0 to 1; None if unknown."""

    name: str
    share: float | None
    remark: str


class BarChart(NamedTuple):
    """A chart of the importance of parameters, most important first."""

    title: str
    note: str
    bars: tuple[ChartBar, ...]


class EmptyChart(NamedTuple):
    """A plot that cannot be drawn, and the reason."""

    title: str
    why: str


Chart = PlaneChart | ParallelChart | BarChart | EmptyChart


def build_charts(study: Study, kinds: Sequence[str]) -> list[Chart]:
    """Returns a chart for each of `kinds`, which are some of KINDS."""
    makers = {BEST: build_best_so_far, PARALLEL: build_parallel, IMPORTANCE: build_importance}
    return [makers[kind](study) for kind in kinds]


def build_best_so_far(study: Study) -> Chart:
    """Returns a chart of every score, in the order in which trials ended, and of the best score up
    to each.
    """
    title = "best so far"
    why = _explain_no_scores(study)
    if why:
        return EmptyChart(title, why)
    best, _ = study.ranked[0]
    scored = study.scored
    rank = {one.index: at for at, (one, _) in enumerate(study.ranked)}
    dots = []
    steps = []
    leader = len(rank)
    top = scored[0][1]
    for at, (one, score) in enumerate(scored, 1):
        if rank[one.index] < leader:
            leader = rank[one.index]
            top = score
        steps.append((float(at), top))
        dots.append(
            ChartDot(
                float(at),
                score,
                one.index,
                label_trial(one, score, study),
                one == best,
            )
        )
    values = [score for _, score in scored]
    y = widen_scale(of_numbers(study.metric, values, log=looks_skewed(values)))
    x = AxisScale(
        "finished trials",
        LINEAR,
        0.0,
        float(len(scored) + 1),
        whole=True,
    )
    note = "; ".join(part for part in (_describe_best(study), _count_unscored(study)) if part)
    return PlaneChart(
        title,
        note,
        x,
        y,
        (ChartLine("best so far", tuple(steps), step=True),),
        tuple(dots),
    )


def build_front(studies: Sequence[Study]) -> Chart:
    """Returns a chart of all trials over two metrics, with the trials that no other trial beats.

    studies: one for each metric, of the same trials. The first two metrics are the axes.
    """
    title = "front"
    if len(studies) < 2:
        return EmptyChart(title, "the sweep has one metric; its `metrics` would name several")
    names = [study.metric for study in studies]
    scored_trials = _find_scored(studies)
    if not scored_trials:
        return EmptyChart(title, f"no finished trial has finite numbers as {' and '.join(names)}")
    found = ParetoFront()
    for one, scores in scored_trials:
        pairs = zip(scores, studies, strict=True)
        found.add(one.index, tuple(sign_value(score, study.goal) for score, study in pairs))
    best = {index for index, _ in found}
    x, y = (
        _fit_axis(name, [it[at] for _, it in scored_trials]) for at, name in enumerate(names[:2])
    )
    dots = tuple(
        ChartDot(
            it[0],
            it[1],
            one.index,
            _label_scored(one, names, it),
            one.index in best,
        )
        for one, it in scored_trials
    )
    line = ChartLine("front", tuple(sorted((dot.x, dot.y) for dot in dots if dot.best)))
    shown = ("on the front", "trial", "front")
    return PlaneChart(
        title,
        _describe_front(studies, sorted(best), len(scored_trials)),
        x,
        y,
        (line,),
        dots,
        shown,
    )


def _find_scored(studies: Sequence[Study]) -> list[tuple[PlottedTrial, list[float]]]:
    """Returns the trials that have a score for every metric, with their scores."""
    rows = zip(*(study.trials for study in studies), strict=True)
    parts = [(ones[0], [it.score for it in ones if it.score is not None]) for ones in rows]
    return [(one, scores) for one, scores in parts if len(scores) == len(studies)]


def _fit_axis(name: str, values: Sequence[float]) -> AxisScale:
    return widen_scale(of_numbers(name, values, log=looks_skewed(values)))


def _describe_front(
    studies: Sequence[Study],
    best: Sequence[int],
    count: int,
) -> str:
    ways = [f"{'higher' if it.goal == MAXIMIZE else 'lower'} {it.metric}" for it in studies]
    listed = and_more([str(index) for index in best], most=CONSTANTS_MAX)
    parts = [f"{count_noun(len(best), 'trial')} of {count} that no other one beats: {listed}"]
    parts.append(f"better is {', '.join(ways)}")
    parts += [f"drawn by the first two of {len(ways)} metrics"] if len(ways) > 2 else []
    return "; ".join(parts)


def _label_scored(
    one: PlottedTrial,
    names: Sequence[str],
    scores: Sequence[float],
) -> str:
    message = " ".join(
        f"{name} {format_number(score)}" for name, score in zip(names, scores, strict=True)
    )
    return f"trial {one.index}: {message}  {format_params(one.params)}".rstrip()


def build_parallel(study: Study) -> Chart:
    """Returns a chart with a line for each trial, across an axis for each parameter that varies."""
    title = "parallel coordinates"
    why = _explain_no_scores(study)
    if why:
        return EmptyChart(title, why)
    ranked = study.ranked
    trials = [one for one, _ in ranked]
    values = collect_columns(trials)
    if not values:
        return EmptyChart(title, "no parameter differs between the finished trials")
    order = _sort_by_importance(study, list(values))
    shown = order[-(AXES_MAX - 1) :]
    axes = [build_axis(study, name, values[name]) for name in shown]
    scores = [score for _, score in ranked]
    axes.append(of_numbers(study.metric, scores, log=looks_skewed(scores)))
    cells = zip(*(values[name] for name in shown), scores, strict=True)
    rows = [
        ParallelRow(
            one.index,
            at / max(len(ranked) - 1, 1),
            tuple(None if v is None else a.position(v) for a, v in zip(axes, row, strict=True)),
            label_trial(one, score, study),
        )
        for at, ((one, score), row) in enumerate(zip(ranked, cells, strict=True))
    ]
    parts = [_describe_best(study), _describe_constants(trials), _describe_left_out(order, shown)]
    if len(rows) > ROWS_MAX:
        parts.append(f"the best {ROWS_MAX} of {len(rows)} trials")
    note = "; ".join(part for part in parts if part)
    return ParallelChart(title, note, tuple(axes), tuple(rows[:ROWS_MAX]))


def build_importance(study: Study) -> Chart:
    """Returns a chart of how much of the differences in score goes with each parameter alone."""
    title = "parameter importance"
    why = _explain_no_scores(study)
    if why:
        return EmptyChart(title, why)
    count = len(study.scored)
    if count < TRIALS_MIN:
        return EmptyChart(title, f"it needs {TRIALS_MIN} finished trials with a score, not {count}")
    found = compute_importances(study)
    if not found:
        return EmptyChart(title, "no parameter differs between the finished trials")
    bars = tuple(ChartBar(one.name, one.share, one.remark) for one in found)
    note = f"share of the rank variance of {study.metric} that goes with one parameter alone"
    return BarChart(title, f"{note}, {count} trials", bars)


def build_axis(
    study: Study,
    name: str,
    values: Sequence[Value | None],
) -> AxisScale:
    """Returns the axis of a parameter. It is logarithmic where the search's distribution is; for a
    list of values, where their distances look so.
    """
    present = [value for value in values if value is not None]
    numbers = [value for value in present if not isinstance(value, str)]
    if len(numbers) < len(present):
        return of_words(name, map(str, present))
    looks_logarithmic = looks_geometric if len(set(numbers)) <= FEW_VALUES else looks_skewed
    guess = looks_logarithmic(numbers)
    log = name in study.logs or (name not in study.evens and guess)
    whole = all(number == int(number) for number in numbers)
    return of_numbers(name, numbers, log=log)._replace(whole=whole)


def label_trial(
    one: PlottedTrial,
    score: float,
    study: Study,
) -> str:
    return (
        f"trial {one.index}: {study.metric} {format_number(score)}  {format_params(one.params)}"
    ).rstrip()


def _explain_no_scores(study: Study) -> str:
    """Returns the reason for which no trial can be drawn by its score; "" without one."""
    if not study.metric:
        return "the search names no `metric`, so no trial is better than another"
    if not study.trials:
        return "no trial has finished yet"
    if not study.scored:
        return f"no finished trial has a finite number as `{study.metric}`"
    return ""


def _describe_best(study: Study) -> str:
    best, score = study.ranked[0]
    return f"best {study.metric} {format_number(score)} (trial {best.index})"


def _count_unscored(study: Study) -> str:
    missing = sum(1 for one in study.trials if one.score is None)
    if missing:
        return f"{count_noun(missing, 'finished trial')} without a score"
    return ""


def _describe_constants(trials: Sequence[PlottedTrial]) -> str:
    fixed = list_constants(trials)
    if fixed:
        return f"the same in all: {and_more(fixed, most=CONSTANTS_MAX)}"
    return ""


def _describe_left_out(order: Sequence[str], shown: Sequence[str]) -> str:
    left = [name for name in order if name not in shown]
    if left:
        return f"not shown: {and_more(left, most=CONSTANTS_MAX)}"
    return ""


def _sort_by_importance(study: Study, names: Sequence[str]) -> list[str]:
    """Returns the parameters, least important first; in alphabetical order while importance is
    unknown.
    """
    known = {one.name: one.share or 0.0 for one in compute_importances(study)}
    return sorted(names, key=lambda name: (known.get(name, 0.0), name))
