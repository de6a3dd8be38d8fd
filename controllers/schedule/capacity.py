"""Tracks the remaining capacity of each provider while one pass hands it out. Called by
reconcile.py; pure.

The judgement is placement.py's; here it is repeated whenever the best provider is full.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from fleetctl.controllers.history.history import History
from fleetctl.controllers.history.retry_limits import FEWER_NODES
from fleetctl.controllers.model import Run, RunState
from fleetctl.controllers.planning.kind_controller import Unit
from fleetctl.controllers.planning.placement import (
    CandidateJudgement,
    ProviderCapacity,
    ProviderOffer,
    explain_full,
    judge_candidates,
    spill_reason,
)
from fleetctl.controllers.planning.plan import Shortage, Stop
from fleetctl.controllers.schedule.desired import DesiredObject, StartWait
from fleetctl.controllers.status_keys import SPILLED_OVER

# How long a provider is left alone after it had no capacity, at least; guessed: quotas change by
# hand or when other users' work ends.
PROBE_AFTER_S_MIN = 15.0
# How long a start lies in its provider's queue before one with fewer nodes is tried; guessed: to
# bring up a whole cluster takes minutes.
FEWER_AFTER_S = 300.0
# The whole request waits together: in a provider's queue, or for all pods of a Job.
TOGETHER = frozenset({"Queued", "Unschedulable"})


class PassSlots:
    """One pass's tally, dropped after the pass."""

    __slots__ = (
        *("_controller", "_history", "_judged", "_left", "_offers", "_shortages", "_unknown"),
    )

    def __init__(
        self,
        desired: DesiredObject,
        history: History,
        now_s: float,
    ) -> None:
        self._controller = desired.controller
        self._history = history
        self._offers = desired.offers
        self._shortages = desired.shortages
        self._unknown = {name: ProviderOffer() for name in desired.providers}
        self._left = dict(_list_capacities(desired, history, now_s))
        self._judged: dict[str, tuple[CandidateJudgement, ...]] = {}

    def judged(self, template_hash: str) -> tuple[CandidateJudgement, ...]:
        """Returns judgements by the capacity left now, best first."""
        known = self._judged.get(template_hash)
        if known is None:
            offers = {**self._unknown, **self._offers.get(template_hash, {})}
            placement = self._controller.placement(template_hash)
            known = self._judged[template_hash] = judge_candidates(placement, offers, self._left)
        return known

    def best(self, template_hash: str) -> CandidateJudgement | None:
        """Returns where the next unit starts; None when every provider is full."""
        return next((it for it in self.judged(template_hash) if it.won), None)

    def open(self, unit: Unit) -> Iterator[CandidateJudgement]:
        """Yields every provider with capacity for the unit, best first. The one that it was moved
        away from comes last: that one is tried again, when due, by another unit, or this one would
        be moved away for ever.
        """
        left = self.find_left_provider(unit)
        found = [it for it in self.judged(unit.template_hash) if self._open(it)]
        return iter(sorted(found, key=lambda it: it.provider == left))

    def find_left_provider(self, unit: Unit) -> str:
        """Returns the provider that the unit's last start was moved away from; empty when it was
        not.
        """
        known = self._history.unfinished.get(unit.index)
        last = known.last if known is not None else None
        if last is not None and last.reason == SPILLED_OVER:
            return last.provider
        return ""

    def elsewhere(self, run: Run) -> CandidateJudgement | None:
        """Returns the best other provider with capacity for a run that waits where it is."""
        judged = self.judged(run.template_hash)
        return next((it for it in judged if it.provider != run.provider and self._open(it)), None)

    def take(self, where: CandidateJudgement) -> None:
        """Takes the capacity of a new sandbox there."""
        left = self._left.get(where.provider)
        if left is None:
            return
        spare = left.spare_usd_per_s
        price = where.usd_per_s
        left = self._left[where.provider] = replace(
            left,
            free=None if left.free is None else left.free - 1,
            spare_usd_per_s=None if spare is None or price is None else spare - price,
        )
        if explain_full(price, left):
            self._judged.clear()

    def full(self, template_hash: str) -> tuple[CandidateJudgement, ...]:
        """Returns the suitable providers without capacity."""
        return tuple(it for it in self.judged(template_hash) if it.fits and not self._open(it))

    def shared(self, provider: str) -> bool:
        """Returns true if the missing capacity may be freed by another object; false when this
        object alone has learned of the shortage.
        """
        short = self._shortages.get(provider)
        left = self._left.get(provider)
        return short is None or left is None or left.full != short.why

    def until_s(self, provider: str) -> float | None:
        """Returns when there may be more capacity, by the clock alone."""
        left = self._left.get(provider)
        if left is not None:
            return left.until_s
        return None

    def over(self) -> Mapping[str, int]:
        """Returns provider -> how many sandboxes it holds above its limit."""
        return {name: left.over for name, left in self._left.items() if left.over}

    def _open(self, judged: CandidateJudgement) -> bool:
        capacity = self._left.get(judged.provider, ProviderCapacity())
        return judged.fits and not explain_full(judged.usd_per_s, capacity)


def explain_placement(judged: tuple[CandidateJudgement, ...]) -> str:
    """Returns why a unit starts where it does, by its candidates; empty where there is no
    choice.
    """
    if len(judged) < 2:
        return ""
    winner = next(it for it in judged if it.won)
    before = judged[: judged.index(winner)]
    lost = [f"`{it.provider}`: {it.why}" for it in before]
    lost += [f"`{it.provider}`: {it.why}" for it in judged if not it.fits]
    return "; ".join((winner.why, *lost))


def plan_spills(
    slots: PassSlots,
    history: History,
    desired: DesiredObject,
    now_s: float,
) -> tuple[tuple[Stop, ...], dict[str, Shortage]]:
    """Moves starts that wait at a full provider while another has capacity: their units start again
    there. Runs above a provider's lowered limit are taken back too, the youngest first; and those
    that wait for more nodes than they need.

    Also returns the shortages of the providers that they leave.
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
        other = slots.elsewhere(run) if wait and _should_move(wait, run, desired, now_s) else None
        if wait is not None and other is not None:
            slots.take(other)
            stops.append(Stop(run.name, SPILLED_OVER, grace_s))
            if run.provider not in shortages:
                shortages[run.provider] = _learn_shortage(
                    run,
                    wait,
                    history,
                    desired,
                    now_s,
                )
        elif wait is not None and _should_shrink(
            wait,
            run,
            history,
            desired,
            now_s,
        ):
            stops.append(Stop(run.name, FEWER_NODES, grace_s))
    return tuple(stops), shortages


def spills_at_s(
    desired: DesiredObject,
    history: History,
    now_s: float,
) -> float | None:
    """Returns when the next waiting start has waited long enough to be moved."""
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


def grow_shortage(
    short: Shortage,
    provider: str,
    history: History,
    now_s: float,
) -> Shortage:
    """Returns the shortage after a successful start: when it took more than the known slots, one
    more is tried.
    """
    begun = sum(
        1
        for box in history.sandboxes.values()
        if box.provider == provider and box.last.state is not RunState.STARTING
    )
    if begun > short.slots:
        return replace(short, slots=begun, probe_at_s=now_s)
    return short


def _learn_shortage(
    moved: Run,
    wait: StartWait,
    history: History,
    desired: DesiredObject,
    now_s: float,
) -> Shortage:
    """Returns the shortage that a move shows of the provider that it leaves: the present number of
    sandboxes fits, and no more.
    """
    provider = moved.provider
    waiting = sum(
        1
        for run in history.live.values()
        if run.provider == provider and (run.name in desired.waits or run.reason == SPILLED_OVER)
    )
    held = _count_sandboxes(history)[provider]
    spill = desired.controller.placement(moved.template_hash).spill
    after_s = max(PROBE_AFTER_S_MIN, spill.after_s)
    slots = max(0, held - waiting)
    reason = spill_reason(wait.reason) or wait.reason
    return Shortage(slots, now_s + after_s, f"it answered {reason}")


def _should_move(
    wait: StartWait,
    run: Run,
    desired: DesiredObject,
    now_s: float,
) -> bool:
    spill = desired.controller.placement(run.template_hash).spill
    if desired.room.paused or wait.asking or wait.short_since_s is None:
        return False
    if spill_reason(wait.reason, account=wait.account) not in spill.on:
        return False
    # Where a shortage is known, one more such reply is enough.
    return run.provider in desired.shortages or now_s >= wait.short_since_s + spill.after_s


def _should_shrink(
    wait: StartWait,
    run: Run,
    history: History,
    desired: DesiredObject,
    now_s: float,
) -> bool:
    if desired.room.paused or wait.asking or wait.short_since_s is None:
        return False
    if wait.reason not in TOGETHER:
        return False
    late = now_s >= wait.short_since_s + FEWER_AFTER_S
    return late and desired.controller.can_shrink(history, run.index)


def _list_capacities(
    desired: DesiredObject,
    history: History,
    now_s: float,
) -> Iterator[tuple[str, ProviderCapacity]]:
    """Yields the capacity left for this object: the provider's, less the learned shortage."""
    held = _count_sandboxes(history) if desired.shortages else Counter()
    for name in desired.controller.candidates:
        room = desired.room.places.get(name)
        short = desired.shortages.get(name)
        if short is not None:
            room = _limit_capacity(room or ProviderCapacity(), short, held[name], now_s)
        if room is not None:
            yield name, room


def _limit_capacity(
    room: ProviderCapacity,
    short: Shortage,
    held: int,
    now_s: float,
) -> ProviderCapacity:
    probing = now_s >= short.probe_at_s
    free = short.slots + probing - held
    if room.free is not None and room.free <= free:
        return room
    until_s = room.until_s if probing else short.probe_at_s
    return replace(
        room,
        free=free,
        full=short.why,
        until_s=until_s,
    )


def _count_sandboxes(history: History) -> Counter[str]:
    return Counter(box.provider for box in history.sandboxes.values())
