"""Begins the nodes of a run with several nodes, each with its own part of the order, and joins the
nodes of one that an earlier process began.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from fleetctl.common.errors import Unavailable
from fleetctl.controllers.model import Alive, Observation
from fleetctl.guest.nodes.gang import build_node_variables, node_name
from fleetctl.providers.contract.base import RunRef, RunRequest
from fleetctl.providers.paths import journal_path
from fleetctl.providers.remote.gangs.node_gang import NodeGang
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

        journal = self._journal_reader(request.uid, request.run)
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

        journal = self._journal_reader(ref.uid, ref.run)
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

    def _journal_reader(self, uid: str, run: str) -> Callable[[int], bytes]:
        """Returns a function that reads a node's journal, as far as it is here."""
        runs = self._runs.journals.directory(uid)

        def told(rank: int) -> bytes:
            path = journal_path(runs, node_name(run, rank))
            if path.exists():
                return path.read_bytes()
            return b""

        return told


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where the nodes of an attempt meet. head: the name of node 0 for its peers; port: of it;
    interface: the network that joins them, "" where libraries find it.
    """

    head: str
    port: int
    interface: str = ""


def node_order(
    order: Mapping[str, Any],
    rank: int,
    gang: NodeGang,
    *,
    meeting: Meeting,
    procs: int,
    token: str,
) -> dict[str, object]:
    """Returns the order of one node of the run. order: of the run. procs: processes of a
    launcher on each node; token: lets the nodes of a Ray cluster join.
    """
    head, port = meeting.head, meeting.port
    met = build_node_variables(rank, gang.addresses, port, procs, meeting.interface)
    met.update(
        MASTER_ADDR=head,
        PET_MASTER_ADDR=head,
        JAX_COORDINATOR_ADDRESS=f"[{head}]:{port}" if ":" in head else f"{head}:{port}",
    )
    if "FLEETCTL_GROUP" in order["env"]:
        met.update(FLEETCTL_GROUP_RANK=str(rank), FLEETCTL_GROUP_HOST=gang.addresses[rank])
    made = {**order, "env": {**order["env"], **met}, "reusable": False}
    if order["ray"]:
        ray = {"rank": rank, "addresses": gang.addresses, "token": token}
        made["ray"] = {**order["ray"], **ray}
    if rank:  # node 0 speaks for all: its time, its metrics, its outputs
        made.update(
            rank=rank,
            timeout_s=None,
            wandb=None,
            metrics=None,
        )
    else:
        made["table"] = gang.table
    return made


def token_of(path: Path) -> str:
    """The same for all nodes of an attempt, also where a controller was restarted between them; in
    a file that only its owner reads, and in no object of the cluster.
    """
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        return path.read_text("ascii")
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(token := secrets.token_hex(32))
    return token
