"""Begins the nodes of a run with several nodes, and joins the nodes of a run that an earlier
controller began. Made by kubernetes_provider.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from fleetctl.common.errors import Unavailable
from fleetctl.controllers.model import Alive, Observation
from fleetctl.guest.nodes.names import node_name
from fleetctl.providers.contract.base import RunRef, RunRequest
from fleetctl.providers.kubernetes.gangs.gang_sandboxes import GangSandboxes
from fleetctl.providers.kubernetes.gangs.orders import node_order, token_of
from fleetctl.providers.kubernetes.manifests import gang_manifests
from fleetctl.providers.kubernetes.runs.job_handles import parse_handle
from fleetctl.providers.paths import journal_path
from fleetctl.providers.remote.runs.guest_order import SandboxContext
from fleetctl.providers.remote.runs.remote_runs import RemoteRuns
from fleetctl.specs.blocks.nodes import procs_of

log = logging.getLogger("fleetctl.providers")


class HandIn(Protocol):
    def __call__(
        self,
        request: RunRequest,
        place: SandboxContext,
        order: Mapping[str, object],
    ) -> Awaitable[None]: ...


class GangNodes:
    """Begins and joins the nodes of runs. hand_in: begins work in its pod; raises TimeoutError
    without an answer in time.
    """

    def __init__(
        self,
        sandboxes: GangSandboxes,
        runs: RemoteRuns,
        hand_in: HandIn,
    ) -> None:
        self._sandboxes = sandboxes
        self._runs = runs
        self._hand_in = hand_in

    async def begin(
        self,
        request: RunRequest,
        place: SandboxContext,
        order: Mapping[str, Any],
        *,
        tokens: Path,
    ) -> None:
        """Begins all nodes, node 0 last: its journal proves to any later caller that all have
        begun.

        order: of the whole run. tokens: the directory of the secrets that nodes of a Ray cluster
            share.
        """
        one = parse_handle(request.handle)

        async def begun_below(name: str, handle: str) -> None:
            """Does nothing: the caller that begins a node follows it."""

        journal = self._told_by(request.uid, request.run)
        await self._sandboxes.join(request.run, request.handle, journal=journal, follow=begun_below)
        gang = self._sandboxes.gangs.get(one.job)
        if gang is None:
            raise Unavailable(f"the Job of run `{request.run}` was ended", reason="SandboxFailed")
        head = gang_manifests.host_name(one.job, await self._sandboxes.namespace(request.handle), 0)
        procs, token = procs_of(request.template), token_of(tokens / f"{request.run}.token")

        async def begin(rank: int, handle: str) -> None:
            name = node_name(request.run, rank)
            made = node_order(
                order,
                rank,
                gang,
                head=head,
                procs=procs,
                token=token,
            )
            made["identity"] = {**order["identity"], "keeper": handle}
            asked = replace(
                request,
                run=name,
                sandbox=name,
                handle=handle,
            )
            await self._hand_in(asked, place, made)

        nodes = await self._sandboxes.others(one)
        await asyncio.gather(*(begin(node.node, str(node)) for node in nodes))
        await begin(0, request.handle)

    async def join(self, ref: RunRef) -> None:
        """Looks after all nodes of a run with several nodes, and reports a single end for all."""
        if not ref.uid or parse_handle(ref.handle).nodes == 1:
            return

        async def follow(name: str, handle: str) -> None:
            await self._runs.follow(ref.uid, name, handle)

        journal = self._told_by(ref.uid, ref.run)
        try:
            await self._sandboxes.join(ref.run, ref.handle, journal=journal, follow=follow)
        except Unavailable as error:  # the run's follower reports it, and the next look tries again
            log.info("nodes not joined", extra={"run": ref.run, "why": str(error)})

    def seen(self, seen: Observation, ref: RunRef) -> Observation:
        """Returns the observation with the reason why a node beside the first is silent."""
        if not isinstance(seen, Alive) or seen.held:
            return seen
        for rank in range(1, parse_handle(ref.handle).nodes):
            if why := self._runs.silence(node_name(ref.run, rank)):
                return replace(seen, held=why.prefixed(f"node {rank}: "))
        return seen

    def _told_by(self, uid: str, run: str) -> Callable[[int], bytes]:
        """Returns a function that reads a node's journal, as far as it is here."""
        runs = self._runs.journals.directory(uid)

        def told(rank: int) -> bytes:
            path = journal_path(runs, node_name(run, rank))
            if path.exists():
                return path.read_bytes()
            return b""

        return told
