"""The base of the providers on machines of people's own, `ssh` and `slurm`: what a box's task is
handed, and how several nodes begin together.

Each of them brings its line to a machine, its boxes, and how they are made.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Protocol

from fleetctl.controllers.model import Observation
from fleetctl.guest.nodes.gang import strip_node
from fleetctl.guest.supervision.processes import data_limit
from fleetctl.providers.contract.base import Owned, RunRef, RunRequest
from fleetctl.providers.machines import machine_volumes
from fleetctl.providers.machines.agent_link import AgentLine
from fleetctl.providers.machines.machine_containers import asks_container
from fleetctl.providers.remote import remote_provider
from fleetctl.providers.remote.gangs.gang_nodes import GangNodes, Meeting, NodeWork
from fleetctl.providers.remote.gangs.joined_sandboxes import (
    JoinedSandboxes,
    NodeSandboxes,
    nodes_of,
    port_of,
)
from fleetctl.providers.remote.remote_provider import RemoteProvider
from fleetctl.providers.remote.runs.guest_order import SandboxContext, guest_order
from fleetctl.specs.blocks.template import Template


class MachineBoxes(NodeSandboxes, Protocol):
    def place_of(self, handle: str) -> str:
        """Returns the directory of a box on its machine, to which there is a line."""
        ...


class MachineProvider(RemoteProvider):
    @property
    @abstractmethod
    def _boxes(self) -> MachineBoxes: ...

    @abstractmethod
    def _line_of(self, handle: str) -> tuple[AgentLine, str]:
        """Returns the line to a box's machine, and a note on the machine for its task."""

    @abstractmethod
    async def _head(self, handle: str) -> tuple[str, str]:
        """Returns the address of the first node for the others, and the interface, or ""."""

    async def observe(self, runs: Sequence[RunRef]) -> Sequence[Observation]:
        asked = {ref.run: ref for ref in runs if not self._is_making(ref)}
        for ref in asked.values():
            await self._nodes.join(ref)
        seen = await self._runs.observe(list(asked.values()))
        return [self._nodes.seen(it, asked[it.run]) for it in seen]

    async def owned(self) -> Sequence[Owned]:
        # Without machines, or without runs on any, the sweep must cost no connection.
        if not self._account().settings or not remote_provider.any_left(self._jobs):
            return []
        return await self._sandboxes.owned()

    def usd_per_s(self, template: Template) -> float | None:
        return 0.0  # a machine of one's own sends no bill

    async def close(self) -> None:
        await super().close()
        await self._sandboxes.close()

    @cached_property
    def _sandboxes(self) -> JoinedSandboxes:
        return JoinedSandboxes(self._boxes)

    @cached_property
    def _nodes(self) -> GangNodes:
        return GangNodes(self._sandboxes, self._runs, self._hand_in)

    async def _stop(self, ref: RunRef, *, grace_s: float) -> None:
        await self._nodes.join(ref)
        await super()._stop(ref, grace_s=grace_s)

    async def _begin(self, request: RunRequest) -> None:
        handles = nodes_of(request.handle)
        if len(handles) == 1:
            work = await self._work(request, request.handle)
            await self._hand_in(request, work.place, work.order)
            return

        async def work_of(rank: int) -> NodeWork:
            return await self._work(request, handles[rank])

        async def meet(secret: str) -> Meeting:
            address, interface = await self._head(handles[0])
            return Meeting(address, port_of(secret), interface)

        await self._nodes.begin(request, work_of, meet, tokens=self._job(request.uid))

    async def _work(self, request: RunRequest, handle: str) -> NodeWork:
        line, note = self._line_of(handle)
        await line.link()
        source = request.template.source
        place = self._boxes.place_of(handle)
        directory = machine_volumes.source_directory(source, place) if source is not None else None
        setup = await machine_volumes.setup_commands(
            request,
            root=str(line.facts["root"]),
            directory=directory or "",
            job=self._job(request.uid),
        )
        if asks_container(request.template) and source is not None and source.git is None:
            setup = []  # it was unpacked before the container began
        context = SandboxContext(handle=request.handle, setup=setup, source=directory, note=note)
        order = guest_order(request, context)
        env = machine_volumes.order_variables(order, request.template.image)
        memory = request.template.sandbox_resources.memory
        data = data_limit(memory) if memory else 0
        return NodeWork(context, {**order, "env": env, "data": data})

    def _changed(self, run: str) -> None:
        super()._changed(strip_node(run))
