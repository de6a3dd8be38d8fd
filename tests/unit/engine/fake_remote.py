"""A repository that a test writes, in memory, and the Keeper of an engine that reads it: manifests
are loaded, proposed and stored as in life, without git and without a process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import replace
from hashlib import sha1

from fleetctl.apply.request.options import Order
from fleetctl.apply.write.letting_go import let_go
from fleetctl.common.errors import Refused, Unavailable
from fleetctl.controllers.model import Resource
from fleetctl.engine.kinds.gitops.keeper import Kept, Reading
from fleetctl.gitops import keeping
from fleetctl.gitops.proposal import Proposal, claim_of, order_of, proposed, values_of
from fleetctl.manifest import Document, load
from fleetctl.manifest.document.namespaces import Chosen
from fleetctl.specs.kinds.source import SourceSpec
from fleetctl.stores.base import Store

Tree = Mapping[str, str]  # path -> text
WHERE = "/nonexistent"


class Remote:
    """branches: name -> commit. away: it does not answer. lost: commits that cannot be fetched
    whole. hangs: it takes a request and never answers.
    """

    def __init__(self) -> None:
        self.trees: dict[str, Tree] = {}
        self.branches: dict[str, str] = {}
        self.away = self.hangs = False
        self.lost: set[str] = set()
        self.asked = self.fetched = 0

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
        return self._remote.branches[ref]

    async def read(self, source: Resource, spec: SourceSpec, commit: str) -> Reading:
        self._remote.fetched += 1
        await self._remote.answers()
        claim, tree = claim_of(source, spec, commit), self._remote.fetch(commit)
        documents = [Document(path, text, WHERE) for path, text in sorted(tree.items())]
        manifests = load([*documents, *values_of(claim, WHERE)], Chosen(claim.within))
        options: Order = replace(order_of(claim), parallelism={"local": 4})
        now_s = self._store_now_s(source)
        found, _ = proposed(self._store, manifests, claim, options, now_s)
        return found

    def _store_now_s(self, source: Resource) -> float:
        return source.created_at_s

    def keep(
        self, reading: Reading, live: Collection[str], *, approved: bool, now_s: float
    ) -> Kept:
        assert isinstance(reading, Proposal)
        return keeping.keep(self._store, reading, live, approved=approved, now_s=now_s)

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
