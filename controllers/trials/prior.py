"""Selects the ended trials of another sweep from which a bayes search begins (`priorTrials`), or
the reason why they are not known yet. Pure; called by the engine before a pass, by an apply, and by
the searches that suggest parameters.

They are taken once, when the other sweep has finished, and stored: a search that has begun does not
depend on later changes to the other sweep, or on its existence.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fleetctl.controllers.history.history import History
from fleetctl.controllers.model import Resource
from fleetctl.controllers.planning.kind_controller import KindController
from fleetctl.controllers.trials.axes import SearchAxis, SearchTrial, axes_of, value_at
from fleetctl.controllers.trials.bayes_points import read_ended_value
from fleetctl.controllers.trials.winner import MissingInput, read_ended_status, unfit_search
from fleetctl.specs.search.config import Search, SearchMetric
from fleetctl.specs.values.hashing import canonical_json

if TYPE_CHECKING:
    from fleetctl.controllers.trials.points import Names

AWAITS_PRIOR = "AwaitsPrior"
NO_PRIOR = "NoPrior"
# A model works on 200 values; the best of these show where to look, the others where not to.
KEPT_MAX = 200


@dataclass(frozen=True, slots=True)
class WarmTrials:
    """trials: (point, value as it was reported) of the trials that warm the search, by index.
    ended: how many trials have finished; outside: how many have another point than the search can,
    unscored: how many have no value.
    """

    trials: tuple[tuple[Mapping[str, Any], float], ...]
    ended: int
    outside: int
    unscored: int

    def text(self) -> str:
        return canonical_json({"trials": self.trials, "ended": self.ended})

    def describe(self, sweep: str, metric: str) -> str:
        """Describes the taken trials in a sentence."""
        more = self.ended - self.outside - self.unscored - len(self.trials)
        left = [
            (more, "are more than a model works on, and not the best"),
            (self.outside, "have parameters outside of this search"),
            (self.unscored, f"have no `{metric}`"),
        ]
        parts = [f"{len(self.trials):,} of {self.ended:,} trials of sweep/{sweep} warm the search"]
        parts += [f"{count:,} {why}" for count, why in left if count]
        return "; ".join(parts)


def prior_trials(text: str, metric: SearchMetric) -> list[SearchTrial]:
    """Parses the stored trials for the model: lower values are better."""
    sign = -1.0 if metric.goal == "maximize" else 1.0
    found = json.loads(text)["trials"]
    return [SearchTrial(point, sign * value, own=False) for point, value in found]


def prior_counts(text: str) -> dict[str, object]:
    """Returns the counts of the stored trials, for a status."""
    found = json.loads(text)
    return {"used": len(found["trials"]), "ended": found["ended"]}


def explain_awaited(
    sweep: Resource | None,
    name: str,
    metric: str,
) -> MissingInput | None:
    """Returns why the trials of the sweep of this name cannot be taken now; metric: of the
    search.
    """
    if sweep is not None and (unfit := unfit_prior(json.loads(sweep.spec), metric)):
        return MissingInput(f"sweep/{name} {unfit}", for_good=True, reason=NO_PRIOR)
    found = read_ended_status(sweep, name, "whose trials warm its search", AWAITS_PRIOR)
    if isinstance(found, MissingInput):
        return found
    return None


def unfit_prior(spec: Mapping[str, Any], metric: str) -> str:
    """Returns why trials of a sweep with this stored spec have no value of `metric`, as the rest of
    a sentence; or an empty text.
    """
    if unfit := unfit_search(spec):
        return unfit.partition(",")[0] + f", and this search follows `{metric}`"
    other = spec["search"]["metric"]["name"]
    if other == metric:
        return ""
    return f"follows `{other}`, and this search `{metric}`"


def find_circle(own: str, next_of: Callable[[str], str]) -> list[str]:
    """Returns the sweeps that wait for each other, from `own` on; empty where it waits for no such.
    next_of: the one that a sweep waits for, or "".
    """
    chain = [own]
    while (name := next_of(chain[-1])) and name not in chain:
        chain.append(name)
    if name == own:
        return chain
    return []


def describe_circle(names: Sequence[str]) -> str:
    """Describes a circle of sweeps, as the rest of a sentence about its first."""
    if len(names) == 1:
        return "waits for its own trials"
    others = " and ".join(f"sweep/{name}" for name in names[1:])
    return f"and {others} wait for each other's trials"


def waits_in_a_circle(names: Sequence[str]) -> MissingInput:
    hint = f"take `priorTrials` out of one of them, such as sweep/{names[0]}"
    text = f"sweep/{names[0]} {describe_circle(names)}, so none of them begins"
    return MissingInput(text, reason=AWAITS_PRIOR, hint=hint)


def choose_warm_trials(
    controller: KindController,
    other: Search,
    history: History,
    own: Search,
) -> WarmTrials:
    """Selects the finished trials; controller, other and history: of the other sweep."""
    there = other.metric
    here = own.metric
    assert there is not None and here is not None, "an unfit sweep is not asked"
    sign = -1.0 if there.goal == "maximize" else 1.0
    fits = _build_filter(own.parameters or {}, other.parameters or {})
    found: list[tuple[Mapping[str, Any], float]] = []
    outside = unscored = 0
    for index in _list_ended(history):
        unit = controller.unit(index)
        value = read_ended_value(history, index, sign) if there.goal == here.goal else None
        value = history.scores.get(index) if value is None else sign * value
        if unit is None or value is None:
            unscored += 1
        elif fits(unit.params):
            found.append((unit.params, value))
        else:
            outside += 1
    return WarmTrials(
        tuple(_choose_trials(found, here)), len(found) + outside + unscored, outside, unscored
    )


def _list_ended(history: History) -> Iterable[int]:
    return sorted({*history.succeeded, *history.pruned, *history.failed})


def _choose_trials(
    found: list[tuple[Mapping[str, Any], float]], metric: SearchMetric
) -> list[tuple[Mapping[str, Any], float]]:
    """Returns all trials, or KEPT_MAX: half of these the best, the others evenly."""
    if len(found) <= KEPT_MAX:
        return found
    sign = -1.0 if metric.goal == "maximize" else 1.0
    order = sorted(range(len(found)), key=lambda at: (sign * found[at][1], at))
    best = order[: KEPT_MAX // 2]
    rest = sorted(order[KEPT_MAX // 2 :])

    others = KEPT_MAX - len(best)
    step = len(rest) / others
    spread = [rest[int(step * at)] for at in range(others)]
    return [found[at] for at in sorted([*best, *spread])]


def _build_filter(
    own: Mapping[str, Any], other: Mapping[str, Any]
) -> Callable[[Mapping[str, Any]], bool]:
    """Returns a predicate: true for points of the other search that inform this one. Each parameter
    that either search varies must lie in this one. Parameters that neither varies may differ, as
    the epochs of a short search.
    """
    vary, fixed = axes_of(own)
    varied_there = {axis.names for axis in axes_of(other)[0]}
    known = {axis.names for axis in vary} | {names for names, _ in fixed}
    same = [(names, value) for names, value in fixed if names in varied_there]
    return lambda point: varied_there <= known and _lies_in(point, vary, same)


def _lies_in(
    point: Mapping[str, Any],
    vary: Sequence[SearchAxis],
    same: Sequence[tuple[Names, Any]],
) -> bool:
    try:
        inside = all(axis.has(value_at(point, axis.names)) for axis in vary)
        return inside and all(value_at(point, names) == value for names, value in same)
    except (KeyError, TypeError, ValueError):
        return False
