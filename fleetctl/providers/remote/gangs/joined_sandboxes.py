"""Joins the sandboxes of several nodes to one, whose handle is those of all nodes, by rank.

Made by providers whose nodes have a sandbox each; the shared part calls its verbs. Handles of a
single sandbox are passed on. Nodes are followed as runs of their own, and the end of node 0 is
reported as that of the run, once all are over.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Protocol

from fleetctl.common.errors import Unavailable
from fleetctl.guest.nodes.gang import is_node_name, node_name, node_of, strip_node
from fleetctl.providers.contract.base import Owned, RunRequest
from fleetctl.providers.remote.gangs.node_gang import NodeGang
from fleetctl.providers.remote.sandboxes import exec_channel
from fleetctl.providers.remote.sandboxes.sandbox_names import run_of
from fleetctl.providers.remote.sandboxes.sandbox_protocol import (
    Cause,
    Fate,
    RunWork,
    Sandboxes,
    StreamOffsets,
)
from fleetctl.specs.blocks.nodes import nodes_of as specified_nodes
from fleetctl.specs.blocks.template import Template

SEPARATOR = "+"
JOINED_AGAIN_S = 1.0
NODES_MAX = 64  # each is followed as a run of its own
PORT_MIN, PORTS = 20_000, 12_000  # below those that Linux gives to clients
_NODE, _COUNT, _GRACE = "node", "nodes", "grace"
GRACE_S = 30.0  # where the sandbox is gone that knew its own


class NodeSandboxes(Sandboxes, Protocol):
    """The sandboxes of a provider, of a node each."""

    async def is_ours(self, handle: str) -> bool: ...

    async def line(self, handle: str, run: str) -> exec_channel.ExecChannel: ...

    async def owned(self) -> list[Owned]: ...

    async def node_facts(self, handle: str) -> NodeFacts: ...


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A node's sandbox: its address for its peers, the grace of its run in seconds, and how many
    nodes that has.
    """

    address: str
    grace_s: float
    count: int


def node_tags(request: RunRequest, rank: int, count: int) -> dict[str, str]:
    """Returns the tags of a node's sandbox beside those of its run. count: of all nodes."""
    if count == 1:
        return {}
    grace_s = request.template.termination_grace_period_seconds
    return {_NODE: str(rank), _COUNT: str(count), _GRACE: f"{grace_s:g}"}


def facts_in(tags: Mapping[str, str], address: str) -> NodeFacts:
    return NodeFacts(address, float(tags.get(_GRACE, GRACE_S)), int(tags.get(_COUNT, 1)))


def sandbox_in(tags: dict[str, str]) -> str:
    """Returns the name of the node that a sandbox was made for."""
    return node_name(run_of(tags), int(tags.get(_NODE, 0)))


def nodes_asked(template: Template, most: int = NODES_MAX) -> int:
    """Returns the nodes of an attempt: of elastic ones as many as `most`."""
    nodes = specified_nodes(template)
    return max(nodes.min, min(nodes.max, most))


def port_of(secret: str) -> int:
    """Returns the port on which nodes meet: machines are shared, so each attempt has its own. It
    follows from the attempt's secret, so that a later controller chooses the same.
    """
    return PORT_MIN + int(secret[:8], 16) % PORTS


def nodes_of(handle: str) -> list[str]:
    """Returns the handles of all nodes, by rank."""
    return handle.split(SEPARATOR)


def first_of(handle: str) -> str:
    return nodes_of(handle)[0]


def join_handles(handles: Sequence[str]) -> str:
    return SEPARATOR.join(handles)


class JoinedSandboxes:
    def __init__(self, nodes: NodeSandboxes) -> None:
        self._nodes = nodes
        self._gangs: dict[str, NodeGang] = {}
        self._whole: dict[str, str] = {}  # handle of a further node -> that of its run
        self._ended: set[str] = set()

    # -- gangs -------------------------------------------------------------------------------------

    def nodes_in(self, handle: str) -> int:
        return len(nodes_of(handle))

    def gang(self, handle: str) -> NodeGang | None:
        return self._gangs.get(handle)

    async def others(self, handle: str) -> list[tuple[int, str]]:
        return list(enumerate(nodes_of(handle)))[1:]

    async def join(
        self,
        run: str,
        handle: str,
        *,
        journal: Callable[[int], bytes],
        follow: Callable[[str, str], Awaitable[None]],
    ) -> None:
        if handle in self._gangs or handle in self._ended:
            return
        nodes = nodes_of(handle)
        facts = await asyncio.gather(*map(self._nodes.node_facts, nodes))
        if handle in self._gangs or handle in self._ended:
            return
        self._gangs[handle] = NodeGang(
            handle,
            [it.address for it in facts],
            grace_s=facts[0].grace_s,
            at_once=False,
            journal=journal,
            ask_stop=lambda rank, grace_s: self._nodes.ask_stop(nodes[rank], run, grace_s),
        )
        for rank, node in enumerate(nodes[1:], start=1):
            self._whole[node] = handle
            await follow(node_name(run, rank), node)

    # -- the Sandboxes protocol --------------------------------------------------------------------

    async def stream(
        self,
        handle: str,
        run: str,
        work: RunWork | None,
        at: StreamOffsets,
    ) -> AsyncGenerator[bytes, None]:
        # In its sandbox a node goes by the name of the run.
        frames = self._nodes.stream(first_of(handle), strip_node(run), work, at)
        if self.nodes_in(handle) > 1:
            gang = self._gangs.get(handle)
            if gang is None:
                await frames.aclose()
                raise Unavailable(
                    "its nodes are not looked after yet", retry_after_s=JOINED_AGAIN_S
                )
            frames = gang.stream_all(frames, heard=at.journal > 0)
        async with aclosing(frames):
            async for data in frames:
                yield data

    async def fate(self, handle: str) -> Fate | None:
        if handle in self._whole:
            return await self._fate_of_node(handle)
        fate = await self._nodes.fate(first_of(handle))
        gang = self._gangs.get(handle)
        if fate is None or gang is None or fate.cause is Cause.STOPPED:
            return fate
        if fate.cause is Cause.UNKNOWN and not gang.failed:
            return fate
        await gang.settled(0, fate)
        return None  # the next stream reports the end of all

    async def end(self, handle: str) -> None:
        whole = self._whole.get(handle)
        if whole is not None:  # its sandbox goes with those of the others
            if (gang := self._gangs.get(whole)) is not None:
                await gang.settled(nodes_of(whole).index(handle))
            return
        await asyncio.gather(*map(self._nodes.end, nodes_of(handle)))
        self._ended.add(handle)
        if (gang := self._gangs.pop(handle, None)) is not None:
            await gang.close()
        for node in nodes_of(handle)[1:]:
            self._whole.pop(node, None)

    async def ask_stop(self, handle: str, run: str, grace_s: float) -> None:
        if (gang := self._gangs.get(handle)) is not None:
            gang.stop_asked(time.time())
        name = strip_node(run)
        await asyncio.gather(
            *(self._nodes.ask_stop(node, name, grace_s) for node in nodes_of(handle))
        )

    async def find(self, run: str) -> str | None:
        """Returns the handle of the sandboxes that carry our tags for this run, or None."""
        first = await self._nodes.find(run)
        if first is None:
            return None
        count = (await self._nodes.node_facts(first)).count
        others = [await self._nodes.find(node_name(run, rank)) for rank in range(1, count)]
        return join_handles([first, *(it for it in others if it is not None)])

    async def line(self, handle: str, run: str) -> exec_channel.ExecChannel:
        return await self._nodes.line(first_of(handle), run)

    async def is_ours(self, handle: str) -> bool:
        return await self._nodes.is_ours(first_of(handle))

    async def owned(self) -> list[Owned]:
        """Returns the sandboxes of each run of our store as one."""
        found: defaultdict[str, list[Owned]] = defaultdict(list)
        for one in await self._nodes.owned():
            found[strip_node(one.sandbox)].append(one)
        return [_join_owned(run, them) for run, them in found.items()]

    async def close(self) -> None:
        for gang in self._gangs.values():
            await gang.close()

    async def _fate_of_node(self, handle: str) -> Fate | None:
        whole = self._whole[handle]
        fate = await self._nodes.fate(handle)
        if fate is None:
            return None
        if fate.cause is Cause.UNKNOWN:
            fate = replace(fate, cause=Cause.LOST, detail="its sandbox is gone")
        await self._gangs[whole].settled(nodes_of(whole).index(handle), fate)
        return fate


def _join_owned(run: str, them: list[Owned]) -> Owned:
    if len(them) == 1 and not is_node_name(them[0].sandbox):
        return them[0]
    them = sorted(them, key=lambda it: node_of(it.sandbox))
    since_s = min(it.created_at_s for it in them)
    return Owned(run, join_handles([it.handle for it in them]), since_s)


_: type[Sandboxes] = JoinedSandboxes
