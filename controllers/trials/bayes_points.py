"""Keeps the points of a bayes search: the first ones drawn as a random search draws them, each
later one suggested from the results of the trials before it, and from then on the parameters of its
attempts.

Called by sweep.py; pure. A suggestion is bayes.py's or tpe.py's, and takes too long for a pass.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from fleetctl.controllers.history.history import History
from fleetctl.controllers.model import Run
from fleetctl.controllers.planning.kind_controller import Params
from fleetctl.controllers.trials.axes import SearchTrial, is_inside
from fleetctl.controllers.trials.points import random_point

if TYPE_CHECKING:
    from fleetctl.specs.search.config import Search, SearchMetric

DRAWN_MIN, DRAWN_MAX = 4, 8  # points to begin with: two a parameter, within these
DRAWS_EACH = 20  # of a small space the same point is drawn again and again


class BayesPoints:
    """points: the known points of wanted trials, by index. prior: the trials of another search, by
    whose number fewer are drawn; None while they are awaited.
    """

    def __init__(
        self,
        search: Search,
        seed: int,
        prior: Sequence[SearchTrial] | None = (),
    ) -> None:
        self._search = search
        self._seed = seed
        self._prior = prior
        self.points: dict[int, Params] = dict(enumerate(self._draw_points()))
        self.exhausted = False  # every point of the space is a trial

    @property
    def waits(self) -> bool:
        return self._prior is None

    def recall(self, run: Run) -> None:
        """Records the point of a trial that began before this controller did. Where the changed
        search does not have it any more, another point replaces it.
        """
        point = json.loads(run.params)
        if is_inside(self._search.parameters or {}, point):
            self.points[run.index] = point
        elif run.index not in self.points:
            self.points[run.index] = random_point(self._search, self._seed, run.index)

    def answer(self, index: int, params: Params | None) -> None:
        if params is None:
            self.exhausted = True
        else:
            self.points[index] = params

    def _draw_points(self) -> list[dict[str, object]]:
        """Draws each point once."""
        if self._prior is None:
            return []
        count = max(DRAWN_MIN, min(DRAWN_MAX, 2 * len(self._search.parameters or {})))
        count -= min(count, len(self._prior))
        found: dict[str, dict[str, object]] = {}
        for draw in range(DRAWS_EACH * count):
            point = random_point(self._search, self._seed, draw)
            found.setdefault(json.dumps(point, sort_keys=True), point)
            if len(found) == count:
                break
        return list(found.values())

    def work(self, history: History, index: int) -> Callable[[], Params | None]:
        parameters = self._search.parameters or {}
        seed = self._seed
        trials = [*(self._prior or ()), *self._list_trials(history)]

        sampler = self._search.sampler

        def work() -> Params | None:
            # Their libraries come with them.
            if sampler is not None:
                from fleetctl.controllers.trials import tpe

                return tpe.suggest_point(
                    parameters,
                    seed,
                    index,
                    trials,
                    sampler,
                )
            from fleetctl.controllers.trials import bayes

            return bayes.suggest_point(parameters, seed, index, trials)

        return work

    def _list_trials(self, history: History) -> Iterator[SearchTrial]:
        """Yields trials by index: the value of a trial counts, not when it came. A lower value is
        better.
        """
        metric = self._search.metric
        assert metric is not None, "the loader refuses a bayes search without a metric"
        sign = -1.0 if metric.goal == "maximize" else 1.0
        found = ((index, read_ended_value(history, index, sign)) for index in self.points)
        ends = {index: value for index, value in found if value is not None}
        worst = max(ends.values(), default=None)
        for index, point in sorted(self.points.items()):
            if index in history.taken:
                yield SearchTrial(
                    point, ends.get(index, _impute_unended(history, index, metric, worst))
                )


def _impute_unended(
    history: History,
    index: int,
    metric: SearchMetric,
    worst: float | None,
) -> float | None:
    """Returns the value assumed for a trial that has not ended well; None where it has reported no
    value.
    """
    if index in history.live_by_index:
        return _impute_value(history, index, str(metric.impute_while_running))
    if index not in history.failed:
        return None
    own = None if metric.impute == "worst" else _impute_value(history, index, metric.impute)
    if own is None:
        return worst
    return own


def read_ended_value(
    history: History,
    index: int,
    sign: float,
) -> float | None:
    """Returns the best value that a finished trial has reported, its result too; also if the trial
    was ended early. None while it runs, and where it reported no value.
    """
    score = history.scores.get(index)
    if index not in history.succeeded and index not in history.pruned:
        return None
    curve = history.curves.newest(index) if history.curves is not None else None
    known = [it for it in (None if score is None else sign * score,) if it is not None]
    known += [curve.best] if curve is not None and curve.count else []
    return min(known, default=None)


def _impute_value(
    history: History,
    index: int,
    how: str,
) -> float | None:
    """Returns the value assumed for an unfinished or failed trial from its own reports; None: they
    do not show one.
    """
    curve = history.curves.newest(index) if history.curves is not None else None
    if curve is None or not curve.count:
        return None
    found = {"latest": curve.last, "best": curve.best, "worst": curve.worst}.get(how)
    if found is None or math.isinf(found):
        return None
    return found
