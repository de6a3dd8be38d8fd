"""What a pass may start: units that are due, and idle sandboxes that can take one. Pure; called by
reconcile.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from controllers.history import History
from controllers.kind import Controller, Policy, Unit, ordered
from controllers.plan import CloseSandbox, Start
from controllers.sandboxes import OpenSandbox
from controllers.seats import Seats


def sort_sandboxes(
    controller: Controller, history: History, seats: Seats
) -> tuple[tuple[CloseSandbox, ...], list[OpenSandbox]]:
    """Idle sandboxes: those to close, and those that can take another task, the best place last."""
    closes: list[CloseSandbox] = []
    idle: list[OpenSandbox] = []
    reuse = controller.policy.reuse
    places = [it.provider for it in seats.judged(controller.template_hash) if it.fits]
    for box in history.sandboxes.values():
        if box.busy:
            continue
        fits = box.template_hash == controller.template_hash and box.provider in places
        if not box.closing and fits and (reuse is None or box.used < reuse):
            idle.append(box)
        else:
            closes.append(CloseSandbox(box.name, box.last.name, "used up or out of date"))
    idle.sort(key=lambda box: -places.index(box.provider))
    return tuple(closes), idle


def wanted_now(
    controller: Controller, history: History, now_s: float
) -> Iterator[tuple[Unit, str]]:
    """Units to start now: those due for another attempt, then fresh ones."""
    stages = ordered(controller)
    for index in history.waiting.due(now_s):
        unit = controller.unit(index)
        if unit is not None and (stages is None or stages.ready(history, index)):
            yield unit, "its next attempt is due"
    for unit in controller.next(history):
        yield unit, "it has not run yet"


def start_of(
    unit: Unit, history: History, reuse: OpenSandbox | None, policy: Policy, reason: str
) -> Start:
    """Its next attempt, in the open sandbox or, once a provider is said, in a new one."""
    used = reuse.used + 1 if reuse else 1
    return Start(
        index=unit.index,
        attempt=history.next_attempt(unit.index),
        params=unit.params,
        params_hash=unit.params_hash,
        template_hash=unit.template_hash,
        provider=reuse.provider if reuse else "",
        reusable=policy.reuse is None or used < policy.reuse,
        sandbox=reuse.name if reuse else None,
        reason=reason,
        placed="its sandbox was free" if reuse and len(policy.placement.candidates) > 1 else "",
    )
