"""Stores a proposal of changes: the objects, their events, and the results that pruned objects
leave to others.

propose.py makes the proposal. Called by the socket server, by Schedules and Sources, and when an
object is enrolled; a dry run and a plan store nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from fleetctl.apply.change import CREATED, PRUNED, UNCHANGED, Change, list_replaced
from fleetctl.apply.policies.report import raise_if_denied
from fleetctl.controllers.model import LIVE_STATES, Resource, RunState
from fleetctl.stores.base import EventRow, Store
from fleetctl.tracking.kept_by import KEPT_BY, name_left_owner


def store_changes(
    store: Store,
    changes: Sequence[Change],
    now_s: float,
) -> None:
    """Stores the proposal, all or none. Raises Conflict when an object changed in between."""
    with store.transaction():
        write_changes(store, changes, now_s)


def write_changes(
    store: Store,
    changes: Sequence[Change],
    now_s: float,
) -> None:
    """Stores the proposal inside a transaction that is begun. Raises PolicyDenied for a policy's
    denial."""
    raise_if_denied(changes)
    for change in changes:
        if change.after == change.before:
            continue
        if change.asked_again:
            _forget_refusals(store, change.after)
        if change.rerun:
            put_aside(store, change.after.uid)
        version = change.before.version if change.before is not None else None
        store.resources.put(change.after, expected_version=version)
    _hand_on_results(store, changes)
    store.events.record(
        [
            EventRow(
                it.after.uid,
                now_s,
                "Normal",
                it.outcome.title(),
                it.record,
            )
            for it in changes
            if it.outcome != UNCHANGED
        ]
    )


def _hand_on_results(store: Store, changes: Sequence[Change]) -> None:
    """Passes the results of pruned objects on to the objects that replace them."""
    for change in changes:
        if change.outcome == CREATED and change.after.annotations.get(KEPT_BY):
            store.cache.hand_on(name_left_owner(change.key), change.after.uid)
            store.cache.forget(name_left_owner(change.key))
        for row in list_replaced(change, changes):
            store.cache.hand_on(row.uid, change.after.uid)
    for change in changes:
        if change.outcome == PRUNED:
            if change.before is not None and change.before.annotations.get(KEPT_BY):
                store.cache.hand_on(change.after.uid, name_left_owner(change.key))
            store.cache.forget(change.after.uid)


def _forget_refusals(store: Store, refused: Resource) -> None:
    """Lets refused runs be tried again: the machine may have since got the missing feature, and
    applying the same file again asks for a new try."""
    for run, _ in list(store.runs.of(refused.uid)):
        if run.state is RunState.REFUSED:
            # Without a template hash it does not count for the present spec; its message stays.
            passed = replace(run, template_hash="")
            store.runs.advance(passed, from_states=frozenset({RunState.REFUSED}))


def put_aside(store: Store, uid: str, indexes: Collection[int] | None = None) -> None:
    """Excludes ended units of an object from its result, and from reuse for equal work. indexes
    None: all indexes, desired or not.
    """
    ends = {run.index: run for run, _ in store.runs.of(uid) if run.state not in LIVE_STATES}
    aside = [run for run in ends.values() if indexes is None or run.index in indexes]
    for run in aside:
        store.runs.advance(replace(run, put_aside=True), from_states=frozenset({run.state}))
    store.cache.put_aside([run.name for run in aside if run.state is RunState.SUCCEEDED])
