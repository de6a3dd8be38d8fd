"""Provider `ssh`: the four verbs for runs, and the assets, on machines of people's own.

Built by wiring; called by the engine. It keeps no truth of its own: boxes on the hosts carry their
names and tags, and the runs' output is mirrored below the account's directory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import cached_property

from fleetctl.common.errors import FleetctlError
from fleetctl.common.finding import Finding, Severity
from fleetctl.controllers.model import Observation
from fleetctl.guest.nodes.gang import whole_name
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.base import (
    Backend,
    Owned,
    Reachable,
    Relaying,
    RunRef,
    RunRequest,
)
from fleetctl.providers.contract.terms import Contract
from fleetctl.providers.machines import machine_volumes
from fleetctl.providers.remote import remote_provider
from fleetctl.providers.remote.gangs.gang_nodes import GangNodes, Meeting, NodeWork
from fleetctl.providers.remote.gangs.joined_sandboxes import (
    NODES_MAX,
    JoinedSandboxes,
    nodes_of,
    port_of,
)
from fleetctl.providers.remote.remote_provider import RemoteProvider
from fleetctl.providers.remote.runs.guest_order import (
    INPUTS_BYTES_MAX,
    SandboxContext,
    guest_order,
)
from fleetctl.providers.remote.sandboxes.sandbox_names import tag_of
from fleetctl.providers.ssh import ssh_hosts
from fleetctl.providers.ssh.ssh_creator import SshCreator, links_of, volume_directory
from fleetctl.providers.ssh.ssh_hosts import SshHosts, SshLine
from fleetctl.providers.ssh.ssh_sandboxes import SshSandboxes, split_handle
from fleetctl.specs.blocks.template import Template

Ask = Callable[[SshLine], Awaitable[object]]

CONTRACT = Contract(
    visibility_bound_s=0.0,
    list_shows_finished=False,
    strong_get=True,
    max_lifetime_s=None,
    billing_quantum_s=0.0,
    calls_per_s=2000.0,
    calls_at_once=512,
    call_deadline_s=900.0,
    # Hosts are asked for their capacity when they are reached; what does not fit waits in line.
    default_parallelism=64,
    poll_s=30.0,
    # A box is named by its run, and is removed once its end is on our disk: its handle comes first.
    two_phase=True,
    nodes_max=NODES_MAX,
    inputs_bytes_max=INPUTS_BYTES_MAX,
)


class SshProvider(RemoteProvider):
    contract = CONTRACT
    sort = "ssh"
    no_functions = "hosts of one's own have no functions"

    def _open(self) -> None:
        self._hosts = SshHosts(self._home, self._account, fleet=tag_of(self._store_id))

    async def start(self, request: RunRequest) -> str:
        machine_volumes.check_image(request.template.image, "ssh")
        return await self._start(request)

    async def observe(self, runs: Sequence[RunRef]) -> Sequence[Observation]:
        asked = {ref.run: ref for ref in runs if not self._is_making(ref)}
        for ref in asked.values():
            await self._nodes.join(ref)
        seen = await self._runs.observe(list(asked.values()))
        return [self._nodes.seen(it, asked[it.run]) for it in seen]

    async def stop(self, ref: RunRef, *, grace_s: float) -> None:
        await self._creating.makings.give_up(ref.run)
        await self._nodes.join(ref)
        await self._stop(ref, grace_s=grace_s)

    async def owned(self) -> Sequence[Owned]:
        # Without hosts, or without runs on any, the sweep must cost no connection.
        if not self._account().settings or not remote_provider.any_left(self._jobs):
            return []
        return await self._sandboxes.owned()

    async def ensure_volume(self, name: str) -> None:
        """Makes the directory on each host that can be reached; a task's start makes it as well."""
        done, failed = await self._on_each(
            lambda line: line.call("ensure", {"top": volume_directory(line, name), "path": ""})
        )
        if failed and not done:
            raise failed[0]

    async def remove_volume(self, name: str) -> None:
        """Removes the directory from all hosts. Raises Unavailable while one cannot be reached."""

        async def remove(line: SshLine) -> object:
            place = {"top": volume_directory(line, name), "path": ""}
            return await line.call("remove", {**place, "recursive": True, "whole": True})

        if not self._account().settings:
            return
        _, failed = await self._on_each(remove)
        if failed:
            raise failed[0]

    def usd_per_s(self, template: Template) -> float | None:
        return 0.0  # a machine of one's own sends no bill

    def _obstacles(self, template: Template, account: Account) -> Iterator[Finding]:
        return ssh_hosts.find_obstacles(template, account)

    def lacks(self, template: Template) -> str:
        found = ssh_hosts.find_obstacles(template, self._account())
        return next((it.what for it in found if it.severity is Severity.NEVER), "")

    async def reach(self) -> None:
        """Asks all hosts; one that answers will do."""
        done, failed = await self._on_each(lambda line: line.call("list"))
        if failed and not done:
            raise failed[0]

    async def close(self) -> None:
        await super().close()
        await self._sandboxes.close()
        await self._hosts.close()

    # -- made when first needed --------------------------------------------------------------------

    @cached_property
    def _boxes(self) -> SshSandboxes:
        return SshSandboxes(
            self._hosts, self._store_id, freed=lambda host: self._creating.free(host)
        )

    @cached_property
    def _sandboxes(self) -> JoinedSandboxes:
        return JoinedSandboxes(self._boxes)

    @cached_property
    def _nodes(self) -> GangNodes:
        return GangNodes(self._sandboxes, self._runs, self._hand_in)

    @cached_property
    def _creating(self) -> SshCreator:
        return SshCreator(
            self._hosts,
            self._boxes,
            prepare=self._prepare,
            store_id=self._store_id,
            notify=self._notify,
        )

    # -- helpers -----------------------------------------------------------------------------------

    async def _on_each(self, ask: Ask) -> tuple[list[object], list[FleetctlError]]:
        """Returns (the replies of hosts, the errors of others). Raises Refused without hosts."""

        async def linked(line: SshLine) -> object:
            await line.link()  # its facts name its directories
            return await ask(line)

        asked = map(linked, self._hosts.lines())
        replies = await asyncio.gather(*asked, return_exceptions=True)
        failed = [it for it in replies if isinstance(it, FleetctlError)]
        for reply in replies:
            if isinstance(reply, BaseException) and not isinstance(reply, FleetctlError):
                raise reply
        return [it for it in replies if not isinstance(it, BaseException)], failed

    async def _prepare(self, request: RunRequest, line: SshLine, box: str) -> None:
        template = request.template
        if template.source is not None:
            await machine_volumes.bring_source(line, template.source, self._job(request.uid))
        python = await machine_volumes.ensure_python(line, template.image)
        if python:
            await line.call("change", {"box": box, "fields": {"python": python}})

    async def _begin(self, request: RunRequest) -> None:
        """Begins the run. Raises TimeoutError without an answer in time: the run may have begun."""
        handles = nodes_of(request.handle)
        if len(handles) == 1:
            work = await self._work(request, request.handle)
            await self._hand_in(request, work.place, work.order)
            return

        async def work_of(rank: int) -> NodeWork:
            return await self._work(request, handles[rank])

        async def meet(secret: str) -> Meeting:
            line = self._hosts.line(split_handle(handles[0])[0])
            interface = line.host.interface or ""
            return Meeting(str(line.facts["address"]), port_of(secret), interface)

        await self._nodes.begin(request, work_of, meet, tokens=self._job(request.uid))

    async def _work(self, request: RunRequest, handle: str) -> NodeWork:
        host, box = split_handle(handle)
        line = self._hosts.line(host)
        await line.link()
        place = self._boxes.place_of(handle)
        source = request.template.source
        directory = machine_volumes.source_directory(source, place) if source is not None else None
        setup = await machine_volumes.setup_commands(
            request,
            root=str(line.facts["root"]),
            directory=directory or "",
            job=self._job(request.uid),
        )
        context = SandboxContext(
            handle=request.handle, setup=setup, source=directory, note=f"host {line.name}"
        )
        order = guest_order(request, context)
        # The agent has made all paths of volumes, for as long as the box lives.
        links = {it["path"] for it in links_of(request.template, line, box.partition("@")[0])}
        volumes = [
            {**it, "links": [path for path in it["links"] if path not in links]}
            for it in order["volumes"]  # type: ignore[attr-defined]
        ]
        env = machine_volumes.order_variables(order, request.template.image)
        return NodeWork(context, {**order, "volumes": volumes, "env": env})

    def _changed(self, run: str) -> None:
        super()._changed(whole_name(run))


_: type[Backend] = SshProvider
__: type[Relaying] = SshProvider
___: type[Reachable] = SshProvider
