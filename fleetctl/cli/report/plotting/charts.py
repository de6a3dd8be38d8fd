"""What a picture of a sweep shows: best so far, parallel coordinates, importance.

Called by gather. Pure; every text in a chart is safe for terminals, and not yet escaped for HTML.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from fleetctl.cli.report.plotting.importance import TRIALS_MIN, importances
from fleetctl.cli.report.plotting.scales import (
    LINEAR,
    Scale,
    looks_geometric,
    looks_skewed,
    number,
    of_numbers,
    of_words,
    roomy,
)
from fleetctl.cli.report.plotting.trials import (
    MAXIMIZE,
    Study,
    Trial,
    Value,
    columns,
    constants,
    words,
)
from fleetctl.common.text import and_more, plural
from fleetctl.controllers.history.metrics.front import Front
from fleetctl.controllers.trials.scores import signed

BEST, PARALLEL, IMPORTANCE = "best", "parallel", "importance"
KINDS = (BEST, PARALLEL, IMPORTANCE)  # of one metric
FRONT, RUNGS = "front", "rungs"

# More lines are a solid block on any screen, and a page of many megabytes.
ROWS_MAX = 1000
# An axis needs room for its name; the least important ones are left out.
AXES_MAX = 12
CONSTANTS_MAX = 6
NAMED_MAX = 8  # dots that are named in a drawing; more names lie over each other


class Dot(NamedTuple):
    """trial: -1 where it belongs to none."""

    x: float
    y: float
    trial: int
    label: str
    best: bool = False


class Line(NamedTuple):
    """step: level until the next point; gaps: where there was no number, ascending."""

    name: str
    points: tuple[tuple[float, float], ...]
    step: bool = False
    gaps: tuple[float, ...] = ()

    def pieces(self) -> list[list[tuple[float, float]]]:
        """The points that a line goes through without leaving out a gap; at least one each."""
        found: list[list[tuple[float, float]]] = []
        for point in self.points:
            gap = bisect_right(self.gaps, found[-1][-1][0]) if found else 0
            if not found or (gap < len(self.gaps) and self.gaps[gap] < point[0]):
                found.append([])
            found[-1].append(point)
        return found


class Plane(NamedTuple):
    """Lines and dots over two axes; `lines` have names where they are told apart. names: of the
    best dots, of the others and of the line beneath them; empty where there are none.
    """

    title: str
    note: str
    x: Scale
    y: Scale
    lines: tuple[Line, ...]
    dots: tuple[Dot, ...] = ()
    names: tuple[str, str, str] = ("best", "trial", "best so far")


class Row(NamedTuple):
    """places: one an axis, from 0 to 1, None where the trial has no such value. rank: 0 is best."""

    trial: int
    rank: float
    places: tuple[float | None, ...]
    label: str


class Parallel(NamedTuple):
    """The score is the last axis, beside the most important parameter; rows are best first."""

    title: str
    note: str
    axes: tuple[Scale, ...]
    rows: tuple[Row, ...]


class Bar(NamedTuple):
    """share: None = nobody can tell."""

    name: str
    share: float | None
    remark: str


class Bars(NamedTuple):
    title: str
    note: str
    bars: tuple[Bar, ...]


class Nothing(NamedTuple):
    """A picture that cannot be drawn, and why."""

    title: str
    why: str


Chart = Plane | Parallel | Bars | Nothing


def charts_of(study: Study, kinds: Sequence[str]) -> list[Chart]:
    makers = {BEST: best_so_far, PARALLEL: parallel, IMPORTANCE: importance}
    return [makers[kind](study) for kind in kinds]


def best_so_far(study: Study) -> Chart:
    """Every score in the order in which trials ended, and the best up to each."""
    title = "best so far"
    why = _no_scores(study)
    if why:
        return Nothing(title, why)
    best, _ = study.ranked[0]
    scored = study.scored
    rank = {one.index: at for at, (one, _) in enumerate(study.ranked)}
    dots, steps = [], []
    leader, top = len(rank), scored[0][1]
    for at, (one, score) in enumerate(scored, 1):
        if rank[one.index] < leader:
            leader, top = rank[one.index], score
        steps.append((float(at), top))
        dots.append(Dot(float(at), score, one.index, label(one, score, study), one == best))
    values = [score for _, score in scored]
    y = roomy(of_numbers(study.metric, values, log=looks_skewed(values)))
    x = Scale("finished trials", LINEAR, 0.0, float(len(scored) + 1), whole=True)
    note = "; ".join(part for part in (_best_said(study), _unscored(study)) if part)
    return Plane(title, note, x, y, (Line("best so far", tuple(steps), step=True),), tuple(dots))


def front(studies: Sequence[Study]) -> Chart:
    """Every trial by two metrics, and those that no other one beats. studies: one a metric, of the
    same trials; of more than two metrics the first two are the axes.
    """
    title = "front"
    if len(studies) < 2:
        return Nothing(title, "the sweep has one metric; its `metrics` would name several")
    names = [study.metric for study in studies]
    there = _weighable(studies)
    if not there:
        return Nothing(title, f"no finished trial has finite numbers as {' and '.join(names)}")
    found = Front()
    for one, scores in there:
        pairs = zip(scores, studies, strict=True)
        found.add(one.index, tuple(signed(score, study.goal) for score, study in pairs))
    best = {index for index, _ in found}
    x, y = (_fitting(name, [it[at] for _, it in there]) for at, name in enumerate(names[:2]))
    dots = tuple(
        Dot(it[0], it[1], one.index, _weighed(one, names, it), one.index in best)
        for one, it in there
    )
    line = Line("front", tuple(sorted((dot.x, dot.y) for dot in dots if dot.best)))
    shown = ("on the front", "trial", "front")
    return Plane(title, _front_said(studies, sorted(best), len(there)), x, y, (line,), dots, shown)


def _weighable(studies: Sequence[Study]) -> list[tuple[Trial, list[float]]]:
    """The trials that have a number for every metric, with these."""
    rows = zip(*(study.trials for study in studies), strict=True)
    parts = [(ones[0], [it.score for it in ones if it.score is not None]) for ones in rows]
    return [(one, scores) for one, scores in parts if len(scores) == len(studies)]


def _fitting(name: str, values: Sequence[float]) -> Scale:
    return roomy(of_numbers(name, values, log=looks_skewed(values)))


def _front_said(studies: Sequence[Study], best: Sequence[int], count: int) -> str:
    ways = [f"{'higher' if it.goal == MAXIMIZE else 'lower'} {it.metric}" for it in studies]
    listed = and_more([str(index) for index in best], most=CONSTANTS_MAX)
    parts = [f"{plural(len(best), 'trial')} of {count} that no other one beats: {listed}"]
    parts.append(f"better is {', '.join(ways)}")
    parts += [f"drawn by the first two of {len(ways)} metrics"] if len(ways) > 2 else []
    return "; ".join(parts)


def _weighed(one: Trial, names: Sequence[str], scores: Sequence[float]) -> str:
    message = " ".join(f"{name} {number(score)}" for name, score in zip(names, scores, strict=True))
    return f"trial {one.index}: {message}  {words(one.params)}".rstrip()


def parallel(study: Study) -> Chart:
    """A line a trial, through its place on an axis for each parameter that varies."""
    title = "parallel coordinates"
    why = _no_scores(study)
    if why:
        return Nothing(title, why)
    ranked = study.ranked
    trials = [one for one, _ in ranked]
    values = columns(trials)
    if not values:
        return Nothing(title, "no parameter differs between the finished trials")
    order = _by_importance(study, list(values))
    shown = order[-(AXES_MAX - 1) :]
    axes = [axis(study, name, values[name]) for name in shown]
    scores = [score for _, score in ranked]
    axes.append(of_numbers(study.metric, scores, log=looks_skewed(scores)))
    cells = zip(*(values[name] for name in shown), scores, strict=True)
    rows = [
        Row(
            one.index,
            at / max(len(ranked) - 1, 1),
            tuple(None if v is None else a.place(v) for a, v in zip(axes, row, strict=True)),
            label(one, score, study),
        )
        for at, ((one, score), row) in enumerate(zip(ranked, cells, strict=True))
    ]
    parts = [_best_said(study), _constant(trials), _left_out(order, shown)]
    if len(rows) > ROWS_MAX:
        parts.append(f"the best {ROWS_MAX} of {len(rows)} trials")
    note = "; ".join(part for part in parts if part)
    return Parallel(title, note, tuple(axes), tuple(rows[:ROWS_MAX]))


def importance(study: Study) -> Chart:
    """What share of the differences in score goes with each parameter alone."""
    title = "parameter importance"
    why = _no_scores(study)
    if why:
        return Nothing(title, why)
    count = len(study.scored)
    if count < TRIALS_MIN:
        return Nothing(title, f"it needs {TRIALS_MIN} finished trials with a score, not {count}")
    found = importances(study)
    if not found:
        return Nothing(title, "no parameter differs between the finished trials")
    bars = tuple(Bar(one.name, one.share, one.remark) for one in found)
    note = f"share of the rank variance of {study.metric} that goes with one parameter alone"
    return Bars(title, f"{note}, {count} trials", bars)


def axis(study: Study, name: str, values: Sequence[Value | None]) -> Scale:
    """By how the search draws the parameter; where it only lists values, by their distances."""
    there = [value for value in values if value is not None]
    numbers = [value for value in there if not isinstance(value, str)]
    if len(numbers) < len(there):
        return of_words(name, map(str, there))
    guess = (
        looks_geometric(numbers) if len(set(numbers)) <= CONSTANTS_MAX else looks_skewed(numbers)
    )
    log = name in study.logs or (name not in study.evens and guess)
    whole = all(number == int(number) for number in numbers)
    return of_numbers(name, numbers, log=log)._replace(whole=whole)


def label(one: Trial, score: float, study: Study) -> str:
    return f"trial {one.index}: {study.metric} {number(score)}  {words(one.params)}".rstrip()


def _no_scores(study: Study) -> str:
    if not study.metric:
        return "the search names no `metric`, so no trial is better than another"
    if not study.trials:
        return "no trial has finished yet"
    if not study.scored:
        return f"no finished trial has a finite number as `{study.metric}`"
    return ""


def _best_said(study: Study) -> str:
    best, score = study.ranked[0]
    return f"best {study.metric} {number(score)} (trial {best.index})"


def _unscored(study: Study) -> str:
    missing = sum(1 for one in study.trials if one.score is None)
    return f"{plural(missing, 'finished trial')} without a score" if missing else ""


def _constant(trials: Sequence[Trial]) -> str:
    fixed = constants(trials)
    return f"the same in all: {and_more(fixed, most=CONSTANTS_MAX)}" if fixed else ""


def _left_out(order: Sequence[str], shown: Sequence[str]) -> str:
    left = [name for name in order if name not in shown]
    return f"not shown: {and_more(left, most=CONSTANTS_MAX)}" if left else ""


def _by_importance(study: Study, names: Sequence[str]) -> list[str]:
    """Least important first; in alphabetical order while nobody can tell."""
    known = {one.name: one.share or 0.0 for one in importances(study)}
    return sorted(names, key=lambda name: (known.get(name, 0.0), name))
