"""The ended trials of another sweep, from which a bayes search begins (`priorTrials`); or why they
are not known yet. Pure; asked by the engine before a pass, by an apply, and by suggested.py.

They are taken once, when the other sweep is over, and stored: a search that has begun depends on
nothing that the other one does, or on whether it is still there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fleetctl.controllers.history.history import History
from fleetctl.controllers.model import Resource
from fleetctl.controllers.planning.kind import KindController
from fleetctl.controllers.trials.axes import Axis, Trial, axes_of, value_at
from fleetctl.controllers.trials.suggested import ended_value
from fleetctl.controllers.trials.winner import Lacking, ended, unfit_search
from fleetctl.specs.search.config import Search, SearchMetric
from fleetctl.specs.values.hashing import canonical_json
from fleetctl.specs.values.hints import with_hint

if TYPE_CHECKING:
    from fleetctl.controllers.trials.points import Names

AWAITS_PRIOR, NO_PRIOR = "AwaitsPrior", "NoPrior"
# A model works on 200 values; the best of these say where to look, the others where not to.
KEPT_MAX = 200


@dataclass(frozen=True, slots=True)
class Taken:
    """trials: (point, value as it was reported) of those that warm the search, by index. ended: of
    how many that are over; outside: how many of them have another point than the search can,
    unscored: how many no value.
    """

    trials: tuple[tuple[Mapping[str, Any], float], ...]
    ended: int
    outside: int
    unscored: int

    def text(self) -> str:
        return canonical_json({"trials": self.trials, "ended": self.ended})

    def told(self, sweep: str, metric: str) -> str:
        """In a sentence."""
        more = self.ended - self.outside - self.unscored - len(self.trials)
        left = [
            (more, "are more than a model works on, and not the best"),
            (self.outside, "have parameters outside of this search"),
            (self.unscored, f"have no `{metric}`"),
        ]
        parts = [f"{len(self.trials):,} of {self.ended:,} trials of sweep/{sweep} warm the search"]
        parts += [f"{count:,} {why}" for count, why in left if count]
        return "; ".join(parts)


def prior_trials(text: str, metric: SearchMetric) -> list[Trial]:
    """What was stored, as the model takes it: lower values are better."""
    sign = -1.0 if metric.goal == "maximize" else 1.0
    found = json.loads(text)["trials"]
    return [Trial(point, sign * value, own=False) for point, value in found]


def prior_counts(text: str) -> dict[str, object]:
    """Of what was stored, for a status."""
    found = json.loads(text)
    return {"used": len(found["trials"]), "ended": found["ended"]}


def awaited(sweep: Resource | None, name: str, metric: str) -> Lacking | None:
    """Why the trials of the sweep of this name cannot be taken now; metric: of the search."""
    if sweep is not None and (unfit := unfit_prior(json.loads(sweep.spec), metric)):
        return Lacking(f"sweep/{name} {unfit}", for_good=True, reason=NO_PRIOR)
    found = ended(sweep, name, "whose trials warm its search", AWAITS_PRIOR)
    return found if isinstance(found, Lacking) else None


def unfit_prior(spec: Mapping[str, Any], metric: str) -> str:
    """Why trials of a sweep with this stored spec say nothing of `metric`, as the rest of a
    sentence; or nothing.
    """
    if unfit := unfit_search(spec):
        return unfit.partition(",")[0] + f", and this search follows `{metric}`"
    other = spec["search"]["metric"]["name"]
    return "" if other == metric else f"follows `{other}`, and this search `{metric}`"


def circle(own: str, next_of: Callable[[str], str]) -> list[str]:
    """The sweeps that wait for each other, from `own` on; empty where it waits for no such.
    next_of: the one that a sweep waits for, or "".
    """
    chain = [own]
    while (name := next_of(chain[-1])) and name not in chain:
        chain.append(name)
    return chain if name == own else []


def circle_told(names: Sequence[str]) -> str:
    """Of a circle, the rest of a sentence about its first."""
    if len(names) == 1:
        return "waits for its own trials"
    others = " and ".join(f"sweep/{name}" for name in names[1:])
    return f"and {others} wait for each other's trials"


def waits_in_a_circle(names: Sequence[str]) -> Lacking:
    hint = f"take `priorTrials` out of one of them, such as sweep/{names[0]}"
    text = f"sweep/{names[0]} {circle_told(names)}, so none of them begins"
    return Lacking(with_hint(text, hint), reason=AWAITS_PRIOR)


def taken_trials(controller: KindController, other: Search, history: History, own: Search) -> Taken:
    """Of the trials that are over; controller, other and history: of the other sweep."""
    there, here = other.metric, own.metric
    assert there is not None and here is not None, "an unfit sweep is not asked"
    sign = -1.0 if there.goal == "maximize" else 1.0
    fits = _fitting(own.parameters or {}, other.parameters or {})
    found: list[tuple[Mapping[str, Any], float]] = []
    outside = unscored = 0
    for index in _over(history):
        unit = controller.unit(index)
        value = ended_value(history, index, sign) if there.goal == here.goal else None
        value = history.scores.get(index) if value is None else sign * value
        if unit is None or value is None:
            unscored += 1
        elif fits(unit.params):
            found.append((unit.params, value))
        else:
            outside += 1
    return Taken(tuple(_kept(found, here)), len(found) + outside + unscored, outside, unscored)


def _over(history: History) -> Iterable[int]:
    return sorted({*history.succeeded, *history.pruned, *history.failed})


def _kept(
    found: list[tuple[Mapping[str, Any], float]], metric: SearchMetric
) -> list[tuple[Mapping[str, Any], float]]:
    """All, or the best half of what is kept and others evenly."""
    if len(found) <= KEPT_MAX:
        return found
    sign = -1.0 if metric.goal == "maximize" else 1.0
    order = sorted(range(len(found)), key=lambda at: (sign * found[at][1], at))
    best, rest = order[: KEPT_MAX // 2], sorted(order[KEPT_MAX // 2 :])
    step = len(rest) / (KEPT_MAX - len(best))
    spread = [rest[int(step * at)] for at in range(KEPT_MAX - len(best))]
    return [found[at] for at in sorted([*best, *spread])]


def _fitting(
    own: Mapping[str, Any], other: Mapping[str, Any]
) -> Callable[[Mapping[str, Any]], bool]:
    """Whether a point of the other search says something of this one: whatever either of them
    varies must lie in this one. What neither varies may differ, as the epochs of a short search.
    """
    vary, fixed = axes_of(own)
    varied_there = {axis.names for axis in axes_of(other)[0]}
    known = {axis.names for axis in vary} | {names for names, _ in fixed}
    same = [(names, value) for names, value in fixed if names in varied_there]
    return lambda point: varied_there <= known and _lies_in(point, vary, same)


def _lies_in(
    point: Mapping[str, Any], vary: Sequence[Axis], same: Sequence[tuple[Names, Any]]
) -> bool:
    try:
        inside = all(axis.has(value_at(point, axis.names)) for axis in vary)
        return inside and all(value_at(point, names) == value for names, value in same)
    except (KeyError, TypeError, ValueError):
        return False
