"""The writing half: what a commit changes, stored inside a transaction of the caller's, unless the
world is not the one that it was read for, or somebody must consent first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from fleetctl.apply.change import CONFIGURED, CREATED, PRUNED, Change
from fleetctl.apply.consent import Sort, losses_of
from fleetctl.apply.impact import impact_on
from fleetctl.apply.policies.judge import standing
from fleetctl.apply.propose import write
from fleetctl.controllers.model import Resource
from fleetctl.engine.kinds.gitops.keeper import Kept, Moved
from fleetctl.gitops.proposal import Item, Loss, Proposal, order_of
from fleetctl.specs.kinds.source import WAIT
from fleetctl.stores.base import Store

# What `onDisruption` has consented to; data and far more work than anybody means are a person's.
_BY_RULE = frozenset((Sort.AGAIN.value, Sort.RUNNING.value))


def keep(
    store: Store, proposal: Proposal, live: Collection[str], *, approved: bool, now_s: float
) -> Kept:
    """live: uids of objects that have runs now. All of it is written, or where this raises nothing.
    Raises Moved and Conflict.
    """
    with store.whole():
        return _kept(store, proposal, live, approved=approved, now_s=now_s)


def _kept(
    store: Store, proposal: Proposal, live: Collection[str], *, approved: bool, now_s: float
) -> Kept:
    changes = [_change(store, it) for it in proposal.items]
    if standing(store, now_s) != proposal.policies:
        raise Moved("policies changed after the commit was read")
    losses = [] if approved else list(_losses(store, proposal, changes, live, now_s))
    if losses:
        return Kept(losses=tuple(losses))
    for item, change in zip(proposal.items, changes, strict=True):
        if item.noted:
            assert change.before is not None
            store.resources.put(change.after, expected_version=change.before.version)
    moving = [it for it in changes if it.outcome in (CREATED, CONFIGURED, PRUNED)]
    write(store, moving, now_s)
    rows = [store.resources.of(it.after.uid) for it in changes]
    changed = {
        word: sum(it.outcome == word for it in changes) for word in (CREATED, CONFIGURED, PRUNED)
    }
    return Kept(
        rows=tuple(it for it in rows if it is not None),
        changed=changed,
        objects=proposal.objects,
        left=proposal.left,
    )


def _change(store: Store, item: Item) -> Change:
    """The change over the row as it is now; only its status may be another than it was."""
    before, after = item.before, item.after
    if before is None:
        there = store.resources.get(after.kind, after.name, after.namespace)
        if there is not None:
            raise Moved(f"{there.key} is there by now")
        return Change(item.outcome, None, after, note=item.told)
    now = store.resources.of(before.uid)
    if now is None or _wanted(now) != _wanted(before):
        raise Moved(f"{before.key} changed after the commit was read")
    return Change(item.outcome, now, after, note=item.told, asked_again=item.asked_again)


def _wanted(row: Resource) -> tuple[object, ...]:
    """All but its status, and how often that was written."""
    return row.generation, row.spec, row.labels, row.annotations, row.deleted_at_s


def _losses(
    store: Store,
    proposal: Proposal,
    changes: list[Change],
    live: Collection[str],
    now_s: float,
) -> Iterator[str]:
    """What a person must allow, a sentence each. What runs is looked at again, as it is now."""
    rule = frozenset() if proposal.claim.on_disruption == WAIT else _BY_RULE
    options = order_of(proposal.claim)
    for item, change in zip(proposal.items, changes, strict=True):
        losses = [it for it in item.losses if it.sort != Sort.RUNNING.value]
        if change.before is not None and not item.noted and change.before.uid in live:
            now = replace(change, impact=impact_on(store, change.after, options))
            found = losses_of(now, (), now_s)
            losses += [Loss(it.sort.value, it.sentence) for it in found if it.sort is Sort.RUNNING]
        yield from (it.sentence for it in losses if it.sort not in rule)
