"""The engine's SourceKeeper: git, a process that reads, and the store, which takes the changes of a
commit in a transaction of the caller's.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path

from fleetctl.apply.change import CONFIGURED, CREATED, PRUNED, Change
from fleetctl.apply.consent import LossType, losses_of
from fleetctl.apply.impact import impact_on
from fleetctl.apply.ownership import let_go
from fleetctl.apply.policies.judge import digest_policies
from fleetctl.apply.write.store_changes import write_changes
from fleetctl.common.errors import Unavailable
from fleetctl.controllers.model import Resource
from fleetctl.engine.execute.secrets import ResolvedSecrets
from fleetctl.engine.kinds.source_status import ObjectsChanged, SourceReading, SourceStoreResult
from fleetctl.engine.kinds.source_status import SourceKeeper as Contract
from fleetctl.gitops import checkout
from fleetctl.gitops.proposal import (
    CommitProposal,
    ProposalLoss,
    ProposedObject,
    claim_of,
    load_proposal,
    order_of,
)
from fleetctl.providers.programs import run_program
from fleetctl.specs.kinds.source import WAIT, SourceSpec
from fleetctl.stores.base import Store

log = logging.getLogger("fleetctl.gitops")

PLACE = "repositories"  # in the state directory
Secrets = Callable[[tuple[str, ...], str], ResolvedSecrets]
LOOK_S = 60.0  # for a remote to name a commit
READ_S = 600.0  # for a commit to be loaded: the machine may be busy
READINGS_AT_ONCE = 2  # processes that load manifests
ERROR_CHARACTERS_MAX = 400

# Consented to by `onDisruption`; a user decides on data and on far more work than is likely meant.
_BY_RULE = frozenset((LossType.AGAIN.value, LossType.RUNNING.value))


class GitKeeper:
    """Reads and stores commits of Sources. home: the state directory. secrets: values of Secrets by
    name, in a namespace."""

    def __init__(
        self,
        home: Path,
        store: Store,
        secrets: Secrets,
    ) -> None:
        self._home, self._store, self._secrets = home, store, secrets
        self._gate = asyncio.Semaphore(READINGS_AT_ONCE)
        self._doubts: dict[str, str] = {}  # by uid: other possible meanings of the ref

    async def tip(self, source: Resource, spec: SourceSpec) -> str:
        values = self._values(source, spec)
        try:
            async with asyncio.timeout(LOOK_S):
                found = await checkout.find_tip(spec.git, values, self._place(source))
        except TimeoutError as error:
            text = f"the repository did not answer within {LOOK_S:g} s"
            raise Unavailable(text, reason="SourceUnreachable") from error
        self._doubts[source.uid] = found.doubt
        return found.commit

    async def read(
        self,
        source: Resource,
        spec: SourceSpec,
        commit: str,
    ) -> SourceReading:
        values = self._values(source, spec)
        place = self._place(source)
        async with self._gate:
            tree = await checkout.check_out(spec.git, commit, values, place)
            found = await self._load(
                tree,
                place,
                source,
                spec,
                commit,
            )
            author, subject = await checkout.describe_commit(spec.git, tree)
        found = replace(found, author=author, subject=subject)
        doubt = self._doubts.get(source.uid, "")
        if doubt:
            return replace(found, warnings=(doubt, *found.warnings))
        return found

    async def _load(
        self,
        tree: Path,
        place: Path,
        source: Resource,
        spec: SourceSpec,
        commit: str,
    ) -> CommitProposal:
        request = place / "request.json"
        about = {"home": str(self._home), "claim": asdict(claim_of(source, spec, commit))}
        request.write_text(json.dumps(about), encoding="utf-8")
        # -P: files of the repository must not shadow modules of ours.
        argv = [sys.executable, "-P", "-m", "fleetctl.gitops.child", str(request)]
        try:
            answer = await run_program(argv, deadline_s=READ_S, cwd=tree)
        except TimeoutError as error:
            text = f"its manifests were not read within {READ_S:g} s"
            raise Unavailable(text, reason="SourceUnreachable") from error
        if answer.code:
            errors = answer.errors.decode("utf-8", "replace")
            log.error("reading failed", extra={"source": source.key, "error": errors})
            last = (errors.strip().splitlines() or ["it was killed"])[-1]
            raise Unavailable(
                f"the process that reads manifests ended: {last[-ERROR_CHARACTERS_MAX:]}",
                reason="SourceUnreachable",
            )
        return load_proposal(json.loads(answer.out))

    def keep(
        self,
        reading: SourceReading,
        live: Collection[str],
        *,
        approved: bool,
        now_s: float,
    ) -> SourceStoreResult:
        assert isinstance(reading, CommitProposal)
        return store_proposal(
            self._store,
            reading,
            live,
            approved=approved,
            now_s=now_s,
        )

    def release(self, source: Resource) -> tuple[Resource, ...]:
        return let_go(self._store, source)

    async def forget(self, source: Resource) -> None:
        await asyncio.to_thread(shutil.rmtree, self._place(source), ignore_errors=True)

    def _place(self, source: Resource) -> Path:
        return self._home / PLACE / source.uid

    def _values(self, source: Resource, spec: SourceSpec) -> Mapping[str, str]:
        """Returns the values of its Secret. Raises Unavailable where that is missing."""
        if spec.git.secret is None:
            return {}
        return self._secrets((spec.git.secret,), source.namespace).values


_: type[Contract] = GitKeeper


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
