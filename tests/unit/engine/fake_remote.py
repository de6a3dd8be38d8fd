"""A repository that a test writes, in memory, and the Keeper of an engine that reads it: manifests
are loaded, proposed and stored as in life, without git and without a process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from hashlib import sha1

from fleetctl.apply.ownership import let_go
from fleetctl.apply.request import ApplyOptions
from fleetctl.common.errors import Refused, Unavailable
from fleetctl.controllers.model import Resource
from fleetctl.engine.kinds.source_status import SourceReading, SourceStoreResult
from fleetctl.gitops import git_keeper
from fleetctl.gitops.child import neighbours_of
from fleetctl.gitops.proposal import (
    CommitProposal,
    SourceClaim,
    changes_by,
    claim_of,
    order_of,
    proposal_of,
    values_of,
)
from fleetctl.manifest import Document, Manifest, load_manifests
from fleetctl.manifest.document.envelope import NamespaceChoice
from fleetctl.specs.kinds.source import SourceSpec
from fleetctl.stores.base import Store

Tree = Mapping[str, str]  # path -> text
WHERE = "/nonexistent"


class Remote:
    """branches: name -> commit. away: it does not answer. lost: commits that cannot be fetched
    whole. hangs: it takes a request and never answers. meanwhile: called while it is asked.
    """

    def __init__(self) -> None:
        self.trees: dict[str, Tree] = {}
        self.branches: dict[str, str] = {}
        self.away = self.hangs = False
        self.lost: set[str] = set()
        self.asked = self.fetched = 0
        self.meanwhile: Callable[[], None] = lambda: None

    def push(self, tree: Tree, branch: str = "main") -> str:
        """The commit. Also a force-push: what was before is not asked about."""
        text = repr((len(self.trees), sorted(tree.items())))
        commit = sha1(text.encode(), usedforsecurity=False).hexdigest()
        self.trees[commit], self.branches[branch] = dict(tree), commit
        return commit

    def fetch(self, commit: str) -> Tree:
        if commit in self.lost:
            raise Unavailable("the fetch broke off", reason="SourceUnreachable")
        return self.trees[commit]

    async def answers(self) -> None:
        if self.hangs:
            await asyncio.get_running_loop().create_future()
        await asyncio.sleep(0)
        self.meanwhile()
        if self.away:
            raise Unavailable("the remote is away", reason="SourceUnreachable")


class RemoteKeeper:
    def __init__(self, store: Store, remote: Remote) -> None:
        self._store, self._remote = store, remote
        self.forgotten: list[str] = []

    async def tip(self, source: Resource, spec: SourceSpec) -> str:
        self._remote.asked += 1
        await self._remote.answers()
        ref = spec.git.ref or "main"
        if ref not in self._remote.branches:
            raise Refused(f"source.git.ref `{ref}` is not in the repository")
        commit = self._remote.branches[ref]
        self._remote.meanwhile()
        return commit

    async def read(self, source: Resource, spec: SourceSpec, commit: str) -> SourceReading:
        self._remote.fetched += 1
        await self._remote.answers()
        claim, tree = claim_of(source, spec, commit), self._remote.fetch(commit)

        def manifests_of(claim: SourceClaim) -> list[Manifest]:
            below = "" if claim.path == "." else f"{claim.path}/"
            files = sorted(it for it in tree.items() if it[0].startswith(below))
            documents = [Document(path, text, WHERE) for path, text in files]
            return load_manifests(
                [*documents, *values_of(claim, WHERE)], NamespaceChoice(claim.within)
            )

        manifests = manifests_of(claim)
        beside = neighbours_of(self._store, claim, manifests_of)
        options: ApplyOptions = replace(order_of(claim, beside), parallelism={"local": 4})
        now_s = self._store_now_s(source)
        changes = changes_by(self._store, manifests, claim, options, now_s, beside)
        return proposal_of(self._store, manifests, claim, changes, now_s)

    def _store_now_s(self, source: Resource) -> float:
        return source.created_at_s

    def keep(
        self, reading: SourceReading, live: Collection[str], *, approved: bool, now_s: float
    ) -> SourceStoreResult:
        assert isinstance(reading, CommitProposal)
        return git_keeper.store_proposal(self._store, reading, live, approved=approved, now_s=now_s)

    def release(self, source: Resource) -> tuple[Resource, ...]:
        return let_go(self._store, source)

    async def forget(self, source: Resource) -> None:
        self.forgotten.append(source.uid)


def job(name: str, *, namespace: str = "", **fields: object) -> str:
    """The text of a manifest."""
    within = f", namespace: {namespace}" if namespace else ""
    lines = "".join(f"\n  {key}: {value}" for key, value in fields.items())
    return (
        "apiVersion: fleetctl.dev/v1alpha1\nkind: BatchJob\n"
        f"metadata: {{name: {name}{within}}}\n"
        f'spec:\n  template: {{python: "SUBMIT(ok=True)"}}{lines}\n'
    )
