"""What is left of each provider while one pass hands it out. Called by reconcile.py; pure.

The judgement is placement.py's; here it is asked again whenever the best place has run out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from fleetctl.controllers.history.history import History
from fleetctl.controllers.history.retries.retry import FEWER_NODES
from fleetctl.controllers.model import Run, RunState
from fleetctl.controllers.planning.placement import (
    Capacity,
    Judgement,
    Offer,
    judge,
    spill_reason,
    why_full,
)
from fleetctl.controllers.planning.plan import Shortage, Stop
from fleetctl.controllers.schedule.desired import Desired, Wait
from fleetctl.controllers.vocabulary.status_keys import SPILLED_OVER

# How long a provider is left alone after it had no room, at least; guessed: quotas change by hand
# or when somebody else's work ends.
PROBE_AFTER_S_MIN = 15.0
# How long a start lies in its provider's queue before one with fewer nodes is tried; guessed: to
# bring up a whole cluster takes minutes.
FEWER_AFTER_S = 300.0
# All that was asked for is waited for together: in a provider's line, or by all pods of a Job.
TOGETHER = frozenset({"Queued", "Unschedulable"})


class Slots:
    """One pass's tally. Nothing outlives the pass."""

    __slots__ = ("_controller", "_judged", "_left", "_offers", "_shortages", "_unknown")

    def __init__(self, desired: Desired, history: History, now_s: float) -> None:
        self._controller = desired.controller
        self._offers = desired.offers
        self._shortages = desired.shortages
        self._unknown = {name: Offer() for name in desired.providers}
        self._left = dict(_capacities(desired, history, now_s))
        self._judged: dict[str, tuple[Judgement, ...]] = {}

    def judged(self, template_hash: str) -> tuple[Judgement, ...]:
        """As of what is left now, best first."""
        known = self._judged.get(template_hash)
        if known is None:
            offers = {**self._unknown, **self._offers.get(template_hash, {})}
            placement = self._controller.placement(template_hash)
            known = self._judged[template_hash] = judge(placement, offers, self._left)
        return known

    def best(self, template_hash: str) -> Judgement | None:
        """Where the next unit starts; None when there is no room anywhere."""
        return next((it for it in self.judged(template_hash) if it.won), None)

    def open(self, template_hash: str) -> Iterator[Judgement]:
        """Every place with room, best first."""
        return (it for it in self.judged(template_hash) if self._open(it))

    def elsewhere(self, run: Run) -> Judgement | None:
        """The best other place with room for a run that waits where it is."""
        judged = self.judged(run.template_hash)
        return next((it for it in judged if it.provider != run.provider and self._open(it)), None)

    def take(self, where: Judgement) -> None:
        """One new sandbox there."""
        left = self._left.get(where.provider)
        if left is None:
            return
        spare, price = left.spare_usd_per_s, where.usd_per_s
        left = self._left[where.provider] = replace(
            left,
            free=None if left.free is None else left.free - 1,
            spare_usd_per_s=None if spare is None or price is None else spare - price,
        )
        if why_full(price, left):
            self._judged.clear()

    def full(self, template_hash: str) -> tuple[Judgement, ...]:
        """The places that would do and have no room."""
        return tuple(it for it in self.judged(template_hash) if it.fits and not self._open(it))

    def shared(self, provider: str) -> bool:
        """Whether what is missing there may come free by another object; not when this one alone
        has learned that there is none.
        """
        short, left = self._shortages.get(provider), self._left.get(provider)
        return short is None or left is None or left.full != short.why

    def until_s(self, provider: str) -> float | None:
        """When there may be more room, by the clock alone."""
        left = self._left.get(provider)
        return left.until_s if left is not None else None

    def over(self) -> Mapping[str, int]:
        """provider -> how many sandboxes it holds above its limit."""
        return {name: left.over for name, left in self._left.items() if left.over}

    def _open(self, judged: Judgement) -> bool:
        capacity = self._left.get(judged.provider, Capacity())
        return judged.fits and not why_full(judged.usd_per_s, capacity)


def placed(judged: tuple[Judgement, ...]) -> str:
    """Why a unit starts where it does, told from its candidates; empty where there is no choice."""
    if len(judged) < 2:
        return ""
    winner = next(it for it in judged if it.won)
    before = judged[: judged.index(winner)]
    lost = [f"`{it.provider}`: {it.why}" for it in before]
    lost += [f"`{it.provider}`: {it.why}" for it in judged if not it.fits]
    return "; ".join((winner.why, *lost))


def spilled(
    slots: Slots, history: History, desired: Desired, now_s: float
) -> tuple[tuple[Stop, ...], dict[str, Shortage]]:
    """Starts that wait where there is no room, while there is room elsewhere: their units start
    anew there. Those above a provider's lowered limit are taken back too, the youngest first; and
    those that wait for more nodes than they need.

    And what the moves tell of the providers that they leave.
    """
    over = dict(slots.over())
    if not over and not desired.waits:
        return (), {}
    stops: list[Stop] = []
    shortages: dict[str, Shortage] = {}
    grace_s = desired.controller.policy.grace_s
    for run in sorted(history.live.values(), key=lambda it: (-it.created_at_s, -it.index)):
        if run.state is not RunState.STARTING or run.sandbox != run.name:
            continue
        if over.get(run.provider, 0) > 0 and not run.handle:
            over[run.provider] -= 1
            stops.append(Stop(run.name, SPILLED_OVER, grace_s))
            continue
        wait = desired.waits.get(run.name)
        other = slots.elsewhere(run) if wait and _moves(wait, run, desired, now_s) else None
        if wait is not None and other is not None:
            slots.take(other)
            stops.append(Stop(run.name, SPILLED_OVER, grace_s))
            if run.provider not in shortages:
                shortages[run.provider] = _learned(run, wait, history, desired, now_s)
        elif wait is not None and _shrinks(wait, run, history, desired, now_s):
            stops.append(Stop(run.name, FEWER_NODES, grace_s))
    return tuple(stops), shortages


def spills_at_s(desired: Desired, history: History, now_s: float) -> float | None:
    """When the next waiting start has waited long enough to be moved."""
    times = []
    for name, wait in desired.waits.items():
        run = history.live.get(name)
        if run is None or wait.short_since_s is None:
            continue
        placement = desired.controller.placement(run.template_hash)
        if len(placement.candidates) > 1:
            times.append(wait.short_since_s + placement.spill.after_s)
        if wait.reason in TOGETHER and desired.controller.can_shrink(history, run.index):
            times.append(wait.short_since_s + FEWER_AFTER_S)
    return min((at_s for at_s in times if at_s > now_s), default=None)


def grown(short: Shortage, provider: str, history: History, now_s: float) -> Shortage:
    """After a start there went well: when it took more than the known slots, one more is tried."""
    begun = sum(
        1
        for box in history.sandboxes.values()
        if box.provider == provider and box.last.state is not RunState.STARTING
    )
    return replace(short, slots=begun, probe_at_s=now_s) if begun > short.slots else short


def _learned(moved: Run, wait: Wait, history: History, desired: Desired, now_s: float) -> Shortage:
    """What a move tells of the provider that it leaves: so many have a place there, and no more."""
    provider = moved.provider
    waiting = sum(
        1
        for run in history.live.values()
        if run.provider == provider and (run.name in desired.waits or run.reason == SPILLED_OVER)
    )
    held = _held(history)[provider]
    spill = desired.controller.placement(moved.template_hash).spill
    after_s = max(PROBE_AFTER_S_MIN, spill.after_s)
    slots = max(0, held - waiting)
    reason = spill_reason(wait.reason) or wait.reason
    return Shortage(slots, now_s + after_s, f"it answered {reason}")


def _moves(wait: Wait, run: Run, desired: Desired, now_s: float) -> bool:
    spill = desired.controller.placement(run.template_hash).spill
    if desired.room.paused or wait.asking or wait.short_since_s is None:
        return False
    if spill_reason(wait.reason, account=wait.account) not in spill.on:
        return False
    # Where it is known that there is no room, one more answer of the kind is enough.
    return run.provider in desired.shortages or now_s >= wait.short_since_s + spill.after_s


def _shrinks(wait: Wait, run: Run, history: History, desired: Desired, now_s: float) -> bool:
    if desired.room.paused or wait.asking or wait.short_since_s is None:
        return False
    if wait.reason not in TOGETHER:
        return False
    late = now_s >= wait.short_since_s + FEWER_AFTER_S
    return late and desired.controller.can_shrink(history, run.index)


def _capacities(desired: Desired, history: History, now_s: float) -> Iterator[tuple[str, Capacity]]:
    """What is left for this object: of the provider, and of what was learned of it."""
    held = _held(history) if desired.shortages else Counter()
    for name in desired.controller.candidates:
        room = desired.room.places.get(name)
        short = desired.shortages.get(name)
        if short is not None:
            room = _shorter(room or Capacity(), short, held[name], now_s)
        if room is not None:
            yield name, room


def _shorter(room: Capacity, short: Shortage, held: int, now_s: float) -> Capacity:
    probing = now_s >= short.probe_at_s
    free = short.slots + probing - held
    if room.free is not None and room.free <= free:
        return room
    until_s = room.until_s if probing else short.probe_at_s
    return replace(room, free=free, full=short.why, until_s=until_s)


def _held(history: History) -> Counter[str]:
    return Counter(box.provider for box in history.sandboxes.values())
