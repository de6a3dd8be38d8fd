"""Suggests the next point of a bayes search by optuna's TPE (`sampler: {name: tpe}`), with the
interface and purity of bayes.py.

optuna is imported here alone, and this module only where such a search runs (`fleetctl[optuna]`);
it keeps no state: each suggestion passes it all trials again, in their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.trial import TrialState, create_trial

from fleetctl.controllers.trials.axes import (
    SearchAxis,
    SearchTrial,
    axes_of,
    features_of,
    first_new,
    key_of,
    point_of,
)

if TYPE_CHECKING:
    from fleetctl.controllers.trials.points import Point
    from fleetctl.specs.search.config import Sampler

ASKS_MAX = 20  # until it names a point that no trial has
CANDIDATES = 1000  # of which the first new one is taken then


def suggest_point(
    parameters: Mapping[str, Any],
    seed: int,
    index: int,
    trials: Sequence[SearchTrial],
    sampler: Sampler,
) -> Point | None:
    """Returns a point that no trial has; None if the space is exhausted. trials: by index, in any
    order of arrival.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    vary, fixed = axes_of(parameters)
    sequence = np.random.SeedSequence([seed & 0xFFFFFFFF, index])
    tpe = optuna.samplers.TPESampler(
        seed=int(sequence.generate_state(1)[0]),
        n_startup_trials=sampler.startup_trials,
        n_ei_candidates=sampler.candidates,
        multivariate=sampler.multivariate,
        constant_liar=True,
    )
    study = optuna.create_study(sampler=tpe)
    space = {_name_axis(at): _build_distribution(axis) for at, axis in enumerate(vary)}
    known = ((it, features_of(vary, it.point)) for it in trials)
    study.add_trials(
        [_freeze_trial(it, vary, found, space) for it, found in known if found is not None]
    )
    taken = {key_of(trial.point) for trial in trials if trial.own}
    for _ in range(ASKS_MAX):
        asked = study.ask(space).params
        cube = [_locate_value(axis, asked[_name_axis(at)]) for at, axis in enumerate(vary)]
        point = point_of(vary, fixed, cube)
        if key_of(point) not in taken:
            return point
    random = np.random.default_rng(sequence)
    return first_new(vary, fixed, random.random((CANDIDATES, len(vary))), taken)


def _name_axis(axis: int) -> str:
    return f"{axis:04}"


def _build_distribution(axis: SearchAxis) -> CategoricalDistribution | FloatDistribution:
    """Maps numbers to positions in the unit cube: bounds, logarithms and steps are the axis's."""
    if axis.width > 1:
        return CategoricalDistribution(tuple(range(axis.width)))
    return FloatDistribution(0.0, 1.0)


def _locate_value(axis: SearchAxis, asked: Any) -> float:
    if axis.width > 1:
        return axis.place(asked)
    return float(asked)


def _freeze_trial(
    trial: SearchTrial,
    vary: Sequence[SearchAxis],
    found: Sequence[float],
    space: Mapping[str, Any],
) -> optuna.trial.FrozenTrial:
    params: dict[str, Any] = {}
    first = 0
    for at, axis in enumerate(vary):
        own = list(found[first : first + axis.width])
        params[_name_axis(at)] = own.index(1.0) if axis.width > 1 else own[0]
        first += axis.width
    state = TrialState.RUNNING if trial.value is None else TrialState.COMPLETE
    return create_trial(
        state=state,
        value=trial.value,
        params=params,
        distributions=dict(space),
    )
