"""An adopted sandbox is written down as a run, in one transaction, and its object is looked at.

Called by adopt.py once the sandbox is claimed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.controllers.model import ADOPTED, Resource, Run, RunState
from fleetctl.controllers.schedule.adoption import Taking
from fleetctl.daemon.adoption.shelter import shelter
from fleetctl.providers.contract.orphans import Orphan
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.specs.values.hashing import canonical_json
from fleetctl.stores.base import EventRow
from fleetctl.tracking.load import work_of

if TYPE_CHECKING:
    from fleetctl.engine.capacity.prices import Market
    from fleetctl.engine.shared.state import State


def enrol(state: State, market: Market, resource: Resource, taken: Taking, orphan: Orphan) -> None:
    """Written down as a start whose answer was lost: the provider is asked by its id, and what
    never began there begins now. Above the object's parallelism nothing may begin, so there it
    is one that did.
    """
    work = work_of(resource, state.store.runs)
    template = work.controller.template(taken.unit.index)
    price = market.price(orphan.provider, template, resource.namespace)
    unit = taken.unit
    run = replace(
        _run(state, orphan, resource.uid, unit.index, taken.attempt),
        template_hash=unit.template_hash,
        params=canonical_json(dict(unit.params)),
        params_hash=unit.params_hash,
        content=unit.content,
        usd_per_s=price,
    )
    limit = work.controller.policy.parallelism
    at_capacity = limit is not None and len(work.history.live) >= limit
    _record(state, resource, [run, *([_running(run)] if at_capacity else [])], orphan)


def enrol_ended(state: State, resource: Resource, index: int, attempt: int, orphan: Orphan) -> None:
    """A sandbox that is no more, of work that is no longer the desired one: its attempt is made, so
    that nothing ever begins under its name again.
    """
    store, now_s = state.store, state.clock.now_s()
    intended = _run(state, orphan, resource.uid, index, attempt)
    ended = replace(intended, state=RunState.STOPPED, reason="Restored", ended_at_s=now_s)
    message = f"sandbox {orphan.handle} at {orphan.provider} began after the backup, and was ended"
    with store.transaction():
        store.runs.begin([intended])
        store.runs.advance(ended)
        again = replace(resource, generation=resource.generation + 1)
        store.resources.put(again, expected_version=resource.version)
        store.events.record([EventRow(resource.uid, now_s, "Warning", "Restored", message)])


def enrol_sheltered(state: State, market: Market, orphan: Orphan, uid: str) -> Resource:
    """What it runs is not known, so its run is one that began: nothing is handed to it."""
    resource = shelter(state.store, orphan, uid, state.clock.now_s())
    controller = work_of(resource, state.store.runs).controller
    unit, template = controller.unit(0), controller.template(0)
    assert unit is not None
    # The price of a machine that nobody described is not known, unless all there are free.
    price = market.price(orphan.provider, template, resource.namespace)
    run = replace(
        _run(state, orphan, uid, 0, 1),
        template_hash=unit.template_hash,
        params=canonical_json(dict(unit.params)),
        params_hash=unit.params_hash,
        content=unit.content,
        usd_per_s=0.0 if price == 0.0 else None,
    )
    _record(state, resource, [run, _running(run)], orphan)
    return resource


def _record(state: State, resource: Resource, states: Sequence[Run], orphan: Orphan) -> None:
    """The run as it is intended, then as it goes on; its object is looked at anew."""
    store, now_s = state.store, state.clock.now_s()
    first, *later = states
    what = f"{KINDS[resource.kind].unit} {first.index} attempt {first.attempt}"
    message = f"sandbox {orphan.handle} at {orphan.provider} adopted as {what}"
    with store.transaction():
        store.runs.begin([first])
        for run in later:
            store.runs.advance(run)
        again = replace(resource, generation=resource.generation + 1)
        store.resources.put(again, expected_version=resource.version)
        store.events.record([EventRow(resource.uid, now_s, "Normal", "Adopted", message)])


def _run(state: State, orphan: Orphan, uid: str, index: int, attempt: int) -> Run:
    return Run(
        name=orphan.run,
        uid=uid,
        index=index,
        attempt=attempt,
        state=RunState.STARTING,
        provider=orphan.provider,
        sandbox=orphan.run,
        template_hash="",
        params="{}",
        params_hash="",
        created_at_s=orphan.created_at_s or state.clock.now_s(),
        handle=orphan.handle,
        placed=ADOPTED,
    )


def _running(run: Run) -> Run:
    return replace(run, state=RunState.RUNNING, started_at_s=run.created_at_s)
