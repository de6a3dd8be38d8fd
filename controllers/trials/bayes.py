"""Computes the next point of a bayes search: a Gaussian process over the trials so far, and the
point where the greatest improvement is expected.

Pure: the same search, seed, index and trials give the same point, for any caller at any time. It
takes some 10 to 300 ms, so the engine computes it outside its loop. numpy is imported here alone,
and this module only where a bayes search runs (`fleetctl[bayes]`).

Matérn 5/2 with a length for each parameter, a signal and a noise, all by maximum a posteriori under
log-normal priors. Running trials take part with the value that is predicted for them, so that
several at once do not get the same point.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fleetctl.controllers.trials.axes import (
    SearchAxis,
    SearchTrial,
    axes_of,
    features_of,
    first_new,
    key_of,
    point_of,
    value_at,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fleetctl.controllers.trials.points import Point

    Matrix = NDArray[np.float64]

VALUES_MAX = 200  # trials that the model is fitted to
# Candidates of one suggestion: drawn from the whole unit cube, then AROUND each of the BEST trials
# at each distance of NEAR, then CLOSER_TRIES around the winner at each distance of CLOSER.
CANDIDATES = 1000
AROUND = 100
BEST = 3
NEAR = (0.1, 0.02)
CLOSER = (0.05, 0.015, 0.004)
CLOSER_TRIES = 200
FIT_ROUNDS = 12
FIT_STEP = 0.6
FIT_SHRINKS = 0.8
CLIP = 3.0  # values further above the median only mark a trial as bad


def suggest_point(
    parameters: Mapping[str, Any],
    seed: int,
    index: int,
    trials: Sequence[SearchTrial],
) -> Point | None:
    """Returns a point that no trial has; None if the space is exhausted. trials: by index, in any
    order of arrival.
    """
    vary, fixed = axes_of(parameters)
    random = np.random.default_rng([seed & 0xFFFFFFFF, index])
    taken = {key_of(trial.point) for trial in trials if trial.own}
    known = [trial for trial in trials if features_of(vary, trial.point) is not None]
    scored = _choose_trials([it for it in known if it.value is not None], random)
    cubes = random.random((CANDIDATES, len(vary)))
    if len({it.value for it in scored}) < 2:
        return first_new(vary, fixed, cubes, taken)

    running = [trial for trial in known if trial.value is None]
    model = _fit_model(vary, scored, running, random)
    near = _draw_near_best(model, vary, scored, random)
    winner, point = _best_new(model, vary, fixed, np.vstack([cubes, *near]), taken)
    for distance in CLOSER:
        if winner is None:
            break
        moved = _move_points(vary, winner, distance, CLOSER_TRIES, random)
        winner, point = _best_new(model, vary, fixed, np.vstack([winner[None, :], moved]), taken)
    if winner is not None:
        return point
    return first_new(vary, fixed, cubes, taken)


def _fit_model(
    vary: Sequence[SearchAxis],
    scored: Sequence[SearchTrial],
    running: Sequence[SearchTrial],
    random: np.random.Generator,
) -> GaussianProcess:
    """Returns a model of the scored trials, in which running trials have their predicted values."""
    features = np.array([features_of(vary, it.point) for it in scored])
    values = _standardise_values([it.value for it in scored])
    model = GaussianProcess(features, values, _list_groups(vary), random)
    if running:
        model.pretend(np.array([features_of(vary, it.point) for it in running]))
    return model


def _draw_near_best(
    model: GaussianProcess,
    vary: Sequence[SearchAxis],
    scored: Sequence[SearchTrial],
    random: np.random.Generator,
) -> list[Matrix]:
    """Returns points around the trials with the BEST predicted values, some at each distance of
    NEAR.
    """
    features = np.array([features_of(vary, it.point) for it in scored])
    order = np.argsort(model.mean(features))[:BEST]
    best = [_to_cube(vary, scored[at].point) for at in order]
    return [
        _move_points(vary, point, distance, AROUND, random) for point in best for distance in NEAR
    ]


class GaussianProcess:
    """x: (n, d) features. y: (n,) standardised values. groups: of each feature, whose length it
    has.
    """

    def __init__(
        self,
        x: Matrix,
        y: Matrix,
        groups: NDArray[np.intp],
        random: np.random.Generator,
    ) -> None:
        self._x = x
        self._y = y
        self._groups = groups
        self._best = 0.0  # the least value that it predicts for a known point
        self._theta = self._fit_lengths(random)
        self._solve()

    def mean(self, at: Matrix) -> Matrix:
        return self._kernel(at, self._x) @ self._alpha

    def improvement(self, at: Matrix) -> Matrix:
        """Returns the expected improvement on the best value that the model predicts for a known
        point.
        """
        mean = self.mean(at)
        cross = self._kernel(at, self._x)
        solved = np.linalg.solve(self._low, cross.T)
        signal = math.exp(2 * self._theta[-2])
        sd = np.sqrt(np.maximum(signal - np.sum(solved**2, axis=0), 1e-12))
        return expected_improvement(self._best, mean, sd)

    def pretend(self, at: Matrix) -> None:
        """Adds points with their predicted values; the best value so far stays."""
        predicted = self.mean(at)
        best = self._best
        self._x, self._y = np.vstack([self._x, at]), np.concatenate([self._y, predicted])
        self._solve()
        self._best = best

    def _solve(self) -> None:
        noise = math.exp(2 * self._theta[-1])
        covariance = self._kernel(self._x, self._x) + (noise + 1e-8) * np.eye(len(self._x))
        self._low = np.linalg.cholesky(covariance)
        self._alpha = np.linalg.solve(self._low.T, np.linalg.solve(self._low, self._y))
        self._best = float(np.min(self.mean(self._x)))

    def _kernel(self, a: Matrix, b: Matrix) -> Matrix:
        lengths = np.exp(self._theta[:-2])[self._groups]
        return math.exp(2 * self._theta[-2]) * matern_kernel(a / lengths, b / lengths)

    def _fit_lengths(self, random: np.random.Generator) -> Matrix:
        """Returns (log lengths, log signal, log noise), by random directions: so few numbers need
        no gradients, and the result does not depend on a solver.
        """
        size = int(self._groups.max()) + 1
        middle = np.array([math.log(0.5 * size**0.3)] * size + [0.0, -2.5])
        spread = np.array([1.0] * (size + 1) + [1.0])
        best = middle
        least = self._cost(middle, middle, spread)
        step = FIT_STEP
        for _ in range(FIT_ROUNDS):
            for _ in range(2 * len(middle)):
                tried = best + step * random.standard_normal(len(middle))
                cost = self._cost(tried, middle, spread)
                if cost < least:
                    best = tried
                    least = cost
            step *= FIT_SHRINKS
        return best

    def _cost(
        self,
        theta: Matrix,
        middle: Matrix,
        spread: Matrix,
    ) -> float:
        """Returns the negative logarithm of the posterior, up to a constant.

        With the values as one more row, the last row of the factor is their solution: a solver that
        does not know a triangle would take twice as long as the factor itself.
        """
        self._theta = theta
        size = len(self._y)
        noise = math.exp(2 * theta[-1]) + 1e-8
        whole = np.empty((size + 1, size + 1))
        whole[:size, :size] = self._kernel(self._x, self._x) + noise * np.eye(size)
        whole[size, :size] = self._y
        whole[size, size] = self._y @ self._y / noise + 1.0  # enough to stay positive definite
        try:
            low = np.linalg.cholesky(whole)
        except np.linalg.LinAlgError:
            return math.inf
        solved = low[size, :size]
        fit = 0.5 * float(solved @ solved) + float(np.log(np.diag(low)[:size]).sum())
        return fit + 0.5 * float((((theta - middle) / spread) ** 2).sum())


def matern_kernel(a: Matrix, b: Matrix) -> Matrix:
    """Returns Matérn 5/2 between the rows of a (n, d) and b (m, d), in lengths: (n, m), 1 at
    distance 0.
    """
    squared = (a**2).sum(1)[:, None] + (b**2).sum(1)[None, :] - 2 * a @ b.T
    r = np.sqrt(5.0 * np.maximum(squared, 0.0))
    return np.asarray((1 + r + r * r / 3) * np.exp(-r))


def expected_improvement(
    best: float,
    mean: Matrix,
    sd: Matrix,
) -> Matrix:
    """Returns the expected improvement below `best` of normal values with this mean and
    deviation.
    """
    z = (best - mean) / sd
    density = np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    below = 0.5 * (1 + np.vectorize(math.erf)(z / math.sqrt(2)))
    return np.asarray(sd * (z * below + density))


# -- points ----------------------------------------------------------------------------------------


def _list_groups(vary: Sequence[SearchAxis]) -> NDArray[np.intp]:
    return np.array([at for at, axis in enumerate(vary) for _ in range(axis.width)], dtype=np.intp)


def _to_cube(vary: Sequence[SearchAxis], point: Mapping[str, Any]) -> Matrix:
    """Returns the coordinates of a point, one number an axis."""
    return np.array([_locate_value(axis, value_at(point, axis.names)) for axis in vary])


def _locate_value(axis: SearchAxis, value: Any) -> float:
    found = axis.features(value)
    if axis.width == 1:
        return found[0]
    return axis.place(list(found).index(1.0))


def _move_points(
    vary: Sequence[SearchAxis],
    cube: Matrix,
    sd: float,
    count: int,
    random: np.random.Generator,
) -> Matrix:
    """Points around one: numbers move a little, now and then a category becomes another."""
    moved = np.clip(cube + sd * random.standard_normal((count, len(vary))), 0.0, 1.0)
    for at, axis in enumerate(vary):
        if axis.width > 1:
            other = random.random(count) < sd
            moved[:, at] = np.where(other, random.random(count), cube[at])
    return moved


def _best_new(
    model: GaussianProcess,
    vary: Sequence[SearchAxis],
    fixed: Sequence[Any],
    cubes: Matrix,
    taken: set[str],
) -> tuple[Matrix | None, Point | None]:
    """Returns, of the candidates that no trial has, the one with the greatest expected improvement:
    in the unit cube, and as a point. (None, None) when trials have them all.
    """
    made = [point_of(vary, fixed, cube) for cube in cubes]
    gain = model.improvement(np.array([features_of(vary, point) for point in made]))
    for at in np.argsort(-gain, kind="stable"):
        if key_of(made[at]) not in taken:
            return cubes[at], made[at]
    return None, None


# -- values ----------------------------------------------------------------------------------------


def _choose_trials(trials: list[SearchTrial], random: np.random.Generator) -> list[SearchTrial]:
    """Returns all trials up to VALUES_MAX; of more, the best half of these and others drawn at
    random.
    """
    if len(trials) <= VALUES_MAX:
        return trials
    order = sorted(range(len(trials)), key=lambda at: (trials[at].value or 0.0, at))
    best = order[: VALUES_MAX // 2]
    rest = order[VALUES_MAX // 2 :]
    drawn = random.choice(len(rest), VALUES_MAX - len(best), replace=False)
    return [trials[at] for at in sorted([*best, *(rest[it] for it in drawn)])]


def _standardise_values(values: Sequence[float | None]) -> Matrix:
    """Scales values to median 0 and spread 1; values far above the others are clipped."""
    y = np.array(values, dtype=np.float64)
    with np.errstate(over="ignore"):
        middle = np.median(y)
        quartile = np.quantile(y, 0.25)
        y = np.minimum(y, middle + CLIP * max(middle - quartile, 1e-300))
        y = y / max(float(np.max(np.abs(y))), 1e-300)  # so that no square is beyond a float
        spread = float(np.std(y))
    return np.asarray((y - np.mean(y)) / (spread or 1.0))
