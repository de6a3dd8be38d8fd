"""The engine's SourceKeeper: git, a process that reads, and the store."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, replace
from pathlib import Path

from fleetctl.apply.write.release_owned import let_go
from fleetctl.common.errors import Unavailable
from fleetctl.controllers.model import Resource
from fleetctl.engine.execute.secrets import ResolvedSecrets
from fleetctl.engine.kinds.gitops.source_keeper import SourceKeeper as Contract
from fleetctl.engine.kinds.gitops.source_keeper import SourceReading, SourceStoreResult
from fleetctl.gitops import checkout, proposal_store
from fleetctl.gitops.proposal import CommitProposal, claim_of
from fleetctl.gitops.proposal_json import load_proposal
from fleetctl.providers.programs import run_program
from fleetctl.specs.kinds.source import SourceSpec
from fleetctl.stores.base import Store

log = logging.getLogger("fleetctl.gitops")

PLACE = "repositories"  # in the state directory
Secrets = Callable[[tuple[str, ...], str], ResolvedSecrets]
LOOK_S = 60.0  # for a remote to name a commit
READ_S = 600.0  # for a commit to be loaded: the machine may be busy
READINGS_AT_ONCE = 2  # processes that load manifests
ERROR_CHARACTERS_MAX = 400


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
        return proposal_store.store_proposal(
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
