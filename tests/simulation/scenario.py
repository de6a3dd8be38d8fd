"""What a scenario is: wishes at their times, and the end that must come. Used by the files that
generate them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tests.simulation.objects import Expect, Spec, Wanted

# When a later wish comes: while things start, in the middle, or when most of it is over.
MOMENTS_S = (0.3, 2.0, 9.0, 30.0, 120.0)


@dataclass(frozen=True, slots=True)
class Wish:
    """verb: apply, delete, suspend, resume, retry, poison (a stored spec that nobody can read),
    damage (the same of an object that runs) or overtake (deleted while somebody edits it).

    name: with its namespace before a dot, where that is not the default, as providers have it.
    """

    at_s: float
    verb: str
    kind: str
    name: str
    spec: Spec = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Quota:
    """For a while, and while faults last, a provider gives no more than so many sandboxes."""

    provider: str
    from_s: float
    to_s: float
    seats: int


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    provider: str
    wishes: tuple[Wish, ...]
    expect: dict[tuple[str, str], Expect]
    orphans: int = 0  # sandboxes with our tag that no record speaks of
    afterwards: tuple[Wish, ...] = ()  # wishes that come when the faults are over
    outage: str = ""  # a provider that stays down long after all other faults ended
    quotas: tuple[Quota, ...] = ()
    later_s: float = 0.0  # how much later than others it begins, by the clock on the wall
    patience_s: float = 0.0  # how much longer than others it may take

    @property
    def providers(self) -> frozenset[str]:
        """All that its objects name."""
        named = [name for wish in self.wishes for name in _providers(wish)]
        return frozenset({self.provider, *named})


def _providers(wish: Wish) -> list[str]:
    if wish.kind == "Provider":
        return [wish.name]
    if not wish.spec or wish.kind == "Budget":
        return []
    placement = wish.spec.get("placement")
    if not isinstance(placement, dict):
        return [str(wish.spec.get("provider"))]
    many = placement.get("ordered") or placement.get("anyOf")
    return [str(it["provider"]) for it in many] if many else [str(placement["provider"])]


def apply(at_s: float, wanted: Wanted) -> Wish:
    return Wish(at_s, "apply", wanted.kind, wanted.name, wanted.spec, wanted.labels)


def say(at_s: float, verb: str, wanted: Wanted) -> Wish:
    return Wish(at_s, verb, wanted.kind, wanted.name)


def later(rng: random.Random) -> float:
    return rng.choice(MOMENTS_S) * rng.uniform(0.5, 1.5)


def make(
    name: str,
    provider: str,
    wishes: list[Wish],
    *ends: Wanted,
    orphans: int = 0,
    outage: str = "",
    quotas: tuple[Quota, ...] = (),
) -> Scenario:
    expect = {(it.kind, it.name): it.expect for it in ends}
    told = sorted(wishes, key=lambda wish: wish.at_s)
    return Scenario(name, provider, tuple(told), expect, orphans, outage=outage, quotas=quotas)
