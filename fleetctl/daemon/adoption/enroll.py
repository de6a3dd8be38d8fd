"""Records an adopted sandbox as a run, in one transaction, and schedules a pass of its object.

Called by adopt.py once the sandbox is claimed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.controllers.model import ADOPTED, Resource, Run, RunState
from fleetctl.controllers.schedule.adoption import AdoptionMatch
from fleetctl.daemon.adoption.shelter import make_orphan_object
from fleetctl.providers.contract.orphans import Orphan
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.specs.values.hashing import canonical_json
from fleetctl.stores.base import EventRow
from fleetctl.tracking.load import work_of

if TYPE_CHECKING:
    from fleetctl.engine.capacity.price_book import PriceBook
    from fleetctl.engine.shared.engine_state import EngineState


def enrol_orphan(
    state: EngineState,
    market: PriceBook,
    resource: Resource,
    taken: AdoptionMatch,
    orphan: Orphan,
) -> None:
    """Records it as a start whose reply was lost: the provider is asked by its id, and a run that
    never began there begins now. Above the object's parallelism no run may begin, so there it is
    recorded as begun.
    """
    work = work_of(resource, state.store.runs)
    template = work.controller.template(taken.unit.index)
    price = market.price(orphan.provider, template, resource.namespace)
    unit = taken.unit
    run = replace(
        _make_run(
            state,
            orphan,
            resource.uid,
            unit.index,
            taken.attempt,
        ),
        template_hash=unit.template_hash,
        params=canonical_json(dict(unit.params)),
        params_hash=unit.params_hash,
        content=unit.content,
        usd_per_s=price,
    )
    limit = work.controller.policy.parallelism
    at_capacity = limit is not None and len(work.history.live) >= limit
    _record_run(state, resource, [run, *([_make_running(run)] if at_capacity else [])], orphan)


def enrol_ended(
    state: EngineState,
    resource: Resource,
    index: int,
    attempt: int,
    orphan: Orphan,
) -> None:
    """Records a sandbox that has ended, with work that is no longer desired: its attempt exists, so
    that no run ever begins under its name again.
    """
    store = state.store
    now_s = state.clock.now_s()
    intended = _make_run(
        state,
        orphan,
        resource.uid,
        index,
        attempt,
    )
    ended = replace(
        intended,
        state=RunState.STOPPED,
        reason="Restored",
        ended_at_s=now_s,
    )
    message = f"sandbox {orphan.handle} at {orphan.provider} began after the backup, and was ended"
    with store.transaction():
        store.runs.begin([intended])
        store.runs.advance(ended)
        again = replace(resource, generation=resource.generation + 1)
        store.resources.put(again, expected_version=resource.version)
        store.events.record(
            [
                EventRow(
                    resource.uid,
                    now_s,
                    "Warning",
                    "Restored",
                    message,
                )
            ]
        )


def enrol_sheltered(
    state: EngineState,
    market: PriceBook,
    orphan: Orphan,
    uid: str,
) -> Resource:
    """Records a run that has begun, for its program is unknown: it is sent no task."""
    resource = make_orphan_object(state.store, orphan, uid, state.clock.now_s())
    controller = work_of(resource, state.store.runs).controller
    unit = controller.unit(0)
    template = controller.template(0)
    assert unit is not None
    # The price of an undescribed machine is unknown, unless all machines are free.
    price = market.price(orphan.provider, template, resource.namespace)
    run = replace(
        _make_run(
            state,
            orphan,
            uid,
            0,
            1,
        ),
        template_hash=unit.template_hash,
        params=canonical_json(dict(unit.params)),
        params_hash=unit.params_hash,
        content=unit.content,
        usd_per_s=0.0 if price == 0.0 else None,
    )
    _record_run(state, resource, [run, _make_running(run)], orphan)
    return resource


def _record_run(
    state: EngineState,
    resource: Resource,
    states: Sequence[Run],
    orphan: Orphan,
) -> None:
    """Records the intended run, then its states; schedules a pass of its object."""
    store = state.store
    now_s = state.clock.now_s()
    first, *later = states
    what = f"{KINDS[resource.kind].unit} {first.index} attempt {first.attempt}"
    message = f"sandbox {orphan.handle} at {orphan.provider} adopted as {what}"
    with store.transaction():
        store.runs.begin([first])
        for run in later:
            store.runs.advance(run)
        again = replace(resource, generation=resource.generation + 1)
        store.resources.put(again, expected_version=resource.version)
        store.events.record(
            [
                EventRow(
                    resource.uid,
                    now_s,
                    "Normal",
                    "Adopted",
                    message,
                )
            ]
        )


def _make_run(
    state: EngineState,
    orphan: Orphan,
    uid: str,
    index: int,
    attempt: int,
) -> Run:
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


def _make_running(run: Run) -> Run:
    return replace(run, state=RunState.RUNNING, started_at_s=run.created_at_s)
