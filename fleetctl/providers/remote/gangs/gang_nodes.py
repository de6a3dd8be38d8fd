"""Begins the nodes of a run with several nodes, and joins the nodes of a run that an earlier
controller began. Made by the providers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from fleetctl.common.errors import Unavailable
from fleetctl.controllers.model import Alive, Observation
from fleetctl.guest.nodes.names import node_name
from fleetctl.providers.contract.base import RunRef, RunRequest
from fleetctl.providers.paths import journal_path
from fleetctl.providers.remote.gangs.node_gang import NodeGang
from fleetctl.providers.remote.gangs.node_orders import Meeting, node_order, token_of
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


class GangSandboxes(Protocol):
    """The sandboxes of a run's nodes, behind the handle of the whole run."""

    def nodes_in(self, handle: str) -> int:
        """Returns how many nodes the run of a handle has."""

    def gang(self, handle: str) -> NodeGang | None:
        """Returns the gang that is looked after; None before `join` and after its end."""

    async def join(
        self,
        run: str,
        handle: str,
        *,
        journal: Callable[[int], bytes],
        follow: Callable[[str, str], Awaitable[None]],
    ) -> None:
        """Looks after the nodes of a run from now on, unless it was ended here. journal: returns
        the journal of a node, as far as it is here; follow: (node's name, its handle) begins to
        follow it.
        """

    async def others(self, handle: str) -> list[tuple[int, str]]:
        """Returns (rank, handle) of the nodes beside the first, as they are followed."""


@dataclass(frozen=True, slots=True)
class NodeWork:
    """The order of the whole run, as it is in the sandbox `place`."""

    place: SandboxContext
    order: Mapping[str, Any]


class GangNodes:
    """Begins and joins the nodes of runs. hand_in: begins work in its sandbox; raises TimeoutError
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
        work_of: Callable[[int], Awaitable[NodeWork]],
        meet: Callable[[str], Awaitable[Meeting]],
        *,
        tokens: Path,
    ) -> None:
        """Begins all nodes, node 0 last: its journal proves to any later caller that all have
        begun.

        work_of: returns the work of a node by its rank. meet: returns the meeting of all nodes,
            given their common secret. tokens: the directory of these secrets.
        """

        async def begun_below(name: str, handle: str) -> None:
            """Does nothing: the caller that begins a node follows it."""

        journal = self._told_by(request.uid, request.run)
        await self._sandboxes.join(request.run, request.handle, journal=journal, follow=begun_below)
        gang = self._sandboxes.gang(request.handle)
        if gang is None:
            raise Unavailable(f"the nodes of run `{request.run}` ended", reason="SandboxFailed")
        procs, token = procs_of(request.template), token_of(tokens / f"{request.run}.token")
        meeting = await meet(token)

        async def begin(rank: int, handle: str) -> None:
            name = node_name(request.run, rank)
            work = await work_of(rank)
            made = node_order(work.order, rank, gang, meeting=meeting, procs=procs, token=token)
            made["identity"] = {**work.order["identity"], "keeper": handle}
            asked = replace(
                request,
                run=name,
                sandbox=name,
                handle=handle,
            )
            await self._hand_in(asked, work.place, made)
            gang.note_begun(rank)

        others = await self._sandboxes.others(request.handle)
        await asyncio.gather(*(begin(rank, handle) for rank, handle in others))
        await begin(0, request.handle)

    async def join(self, ref: RunRef) -> None:
        """Looks after all nodes of a run with several nodes, and reports a single end for all."""
        if not ref.uid or self._sandboxes.nodes_in(ref.handle) == 1:
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
        for rank in range(1, self._sandboxes.nodes_in(ref.handle)):
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
