"""What a scenario is: specs at their times, and the end that must come. Used by the files that
generate them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from tests.simulation.objects import Expect, Spec, Wanted

# When a later spec comes: while things start, in the middle, or when most of it is over.
MOMENTS_S = (0.3, 2.0, 9.0, 30.0, 120.0)


@dataclass(frozen=True, slots=True)
class Desired:
    """verb: apply, delete, suspend, resume, retry, rerun, poison (a stored spec that nobody can
    read), damage (the same of an object that runs) or overtake (deleted while somebody edits it).

    name: with its namespace before a dot, where that is not the default, as providers have it.
    """

    at_s: float
    verb: str
    kind: str
    name: str
    spec: Spec = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    beside: tuple[Desired, ...] = ()  # of `apply`: what the same file holds after it


@dataclass(frozen=True, slots=True)
class Quota:
    """For a while, and while faults last, a provider gives no more than so many sandboxes."""

    provider: str
    from_s: float
    to_s: float
    slots: int


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    provider: str
    desired_rows: tuple[Desired, ...]
    expect: dict[tuple[str, str], Expect]
    orphans: int = 0  # sandboxes with our tag that no record speaks of
    afterwards: tuple[Desired, ...] = ()  # specs that come when the faults are over
    outage: str = ""  # a provider that stays down long after all other faults ended
    quotas: tuple[Quota, ...] = ()
    later_s: float = 0.0  # how much later than others it begins, by the clock on the wall
    patience_s: float = 0.0  # how much longer than others it may take

    @property
    def providers(self) -> frozenset[str]:
        """All that its objects name."""
        named = [name for desired in self.desired_rows for name in _providers(desired)]
        return frozenset({self.provider, *named})


def _providers(desired: Desired) -> list[str]:
    if desired.kind == "Provider":
        return [desired.name]
    if not desired.spec or desired.kind in ("Budget", "Queue"):
        return []
    placement = desired.spec.get("placement")
    if not isinstance(placement, dict):
        return [str(desired.spec.get("provider"))]
    many = placement.get("ordered") or placement.get("anyOf")
    return [str(it["provider"]) for it in many] if many else [str(placement["provider"])]


def apply(at_s: float, wanted: Wanted) -> Desired:
    return Desired(at_s, "apply", wanted.kind, wanted.name, wanted.spec, wanted.labels)


def apply_all(at_s: float, *wanted: Wanted) -> Desired:
    """One file."""
    first, *rest = (apply(at_s, it) for it in wanted)
    return replace(first, beside=tuple(rest))


def say(at_s: float, verb: str, wanted: Wanted) -> Desired:
    return Desired(at_s, verb, wanted.kind, wanted.name)


def later(rng: random.Random) -> float:
    return rng.choice(MOMENTS_S) * rng.uniform(0.5, 1.5)


def make(
    name: str,
    provider: str,
    desired_rows: list[Desired],
    *ends: Wanted,
    orphans: int = 0,
    outage: str = "",
    quotas: tuple[Quota, ...] = (),
) -> Scenario:
    expect = {(it.kind, it.name): it.expect for it in ends}
    listed = sorted(desired_rows, key=lambda desired: desired.at_s)
    return Scenario(name, provider, tuple(listed), expect, orphans, outage=outage, quotas=quotas)
