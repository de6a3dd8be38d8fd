"""Stores the changes of a commit inside a transaction of the caller's, unless the world is not the
one that it was read for, or a user must consent first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from fleetctl.apply.change import CONFIGURED, CREATED, PRUNED, Change
from fleetctl.apply.consent import LossType, losses_of
from fleetctl.apply.impact import impact_on
from fleetctl.apply.policies.judge import digest_policies
from fleetctl.apply.propose import write_changes
from fleetctl.controllers.model import Resource
from fleetctl.engine.kinds.gitops.source_keeper import ObjectsChanged, SourceStoreResult
from fleetctl.gitops.proposal import CommitProposal, ProposalLoss, ProposedObject, order_of
from fleetctl.specs.kinds.source import WAIT
from fleetctl.stores.base import Store

# Consented to by `onDisruption`; a user decides on data and on far more work than is likely meant.
_BY_RULE = frozenset((LossType.AGAIN.value, LossType.RUNNING.value))


def store_proposal(
    store: Store,
    proposal: CommitProposal,
    live: Collection[str],
    *,
    approved: bool,
    now_s: float,
) -> SourceStoreResult:
    """Stores the proposal. live: uids of objects that have runs now. The whole proposal is written,
    or with an exception no part. Raises ObjectsChanged and Conflict.
    """
    with store.whole():
        return _write_proposal(
            store,
            proposal,
            live,
            approved=approved,
            now_s=now_s,
        )


def _write_proposal(
    store: Store,
    proposal: CommitProposal,
    live: Collection[str],
    *,
    approved: bool,
    now_s: float,
) -> SourceStoreResult:
    changes = [_rebase_change(store, it) for it in proposal.items]
    if digest_policies(store, now_s) != proposal.policies:
        raise ObjectsChanged("policies changed after the commit was read")
    losses = (
        []
        if approved
        else list(
            _list_losses(
                store,
                proposal,
                changes,
                live,
                now_s,
            )
        )
    )
    if losses:
        return SourceStoreResult(losses=tuple(losses))
    for item, change in zip(proposal.items, changes, strict=True):
        if item.noted:
            assert change.before is not None
            store.resources.put(change.after, expected_version=change.before.version)
    moving = [it for it in changes if it.outcome in (CREATED, CONFIGURED, PRUNED)]
    write_changes(store, moving, now_s)
    rows = [store.resources.of(it.after.uid) for it in changes]
    changed = {
        word: sum(it.outcome == word for it in changes) for word in (CREATED, CONFIGURED, PRUNED)
    }
    return SourceStoreResult(
        rows=tuple(it for it in rows if it is not None),
        changed=changed,
        objects=proposal.objects,
        left=proposal.left,
    )


def _rebase_change(store: Store, item: ProposedObject) -> Change:
    """Returns the change over the row as it is now; only its status may differ."""
    before = item.before
    after = item.after
    if before is None:
        there = store.resources.get(after.kind, after.name, after.namespace)
        if there is not None:
            raise ObjectsChanged(f"{there.key} is there by now")
        return Change(item.outcome, None, after, note=item.told)
    now = store.resources.of(before.uid)
    if now is None or _identify_state(now) != _identify_state(before):
        raise ObjectsChanged(f"{before.key} changed after the commit was read")
    return Change(
        item.outcome,
        now,
        after,
        note=item.told,
        asked_again=item.asked_again,
    )


def _identify_state(row: Resource) -> tuple[object, ...]:
    """Returns all fields but its status, and the count of its writes."""
    return row.generation, row.spec, row.labels, row.annotations, row.deleted_at_s


def _list_losses(
    store: Store,
    proposal: CommitProposal,
    changes: list[Change],
    live: Collection[str],
    now_s: float,
) -> Iterator[str]:
    """Yields the losses that a user must allow, a sentence each. Running work is looked at again,
    as it is now."""
    rule = frozenset() if proposal.claim.on_disruption == WAIT else _BY_RULE
    options = order_of(proposal.claim)
    for item, change in zip(proposal.items, changes, strict=True):
        losses = [it for it in item.losses if it.sort != LossType.RUNNING.value]
        if change.before is not None and not item.noted and change.before.uid in live:
            now = replace(change, impact=impact_on(store, change.after, options))
            found = losses_of(now, (), now_s)
            losses += [
                ProposalLoss(it.sort.value, it.sentence)
                for it in found
                if it.sort is LossType.RUNNING
            ]
        yield from (it.sentence for it in losses if it.sort not in rule)
