"""Provider `ssh`: the four verbs for runs, and the assets, on machines of people's own.

Built by wiring; called by the engine. It keeps no truth of its own: boxes on the hosts carry their
names and tags, and the runs' output is mirrored below the account's directory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import cached_property

from fleetctl.common.errors import FleetctlError
from fleetctl.common.finding import Finding
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.base import (
    Backend,
    Reachable,
    Relaying,
    RunRequest,
)
from fleetctl.providers.contract.terms import Contract
from fleetctl.providers.machines import machine_containers, machine_volumes
from fleetctl.providers.machines.agent_link import AgentLine
from fleetctl.providers.machines.machine_containers import asks_container
from fleetctl.providers.machines.machine_provider import MachineProvider
from fleetctl.providers.remote.gangs.gang_nodes import NodeWork
from fleetctl.providers.remote.gangs.joined_sandboxes import (
    NODES_MAX,
)
from fleetctl.providers.remote.runs.guest_order import (
    INPUTS_BYTES_MAX,
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


class SshProvider(MachineProvider):
    contract = CONTRACT
    sort = "ssh"
    no_functions = ssh_hosts.NO_FUNCTIONS

    def _open(self) -> None:
        self._hosts = SshHosts(self._home, self._account, fleet=tag_of(self._store_id))

    async def start(self, request: RunRequest) -> str:
        machine_volumes.check_image(request.template.image, "ssh")
        return await self._start(request)

    async def ensure_volume(self, name: str) -> None:
        """Makes the directory on each host that can be reached; a task's start makes it as well."""
        done, failed = await self._ask_each(
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
        _, failed = await self._ask_each(remove)
        if failed:
            raise failed[0]

    def _obstacles(self, template: Template, account: Account) -> Iterator[Finding]:
        return ssh_hosts.find_obstacles(template, account, self._home, self._hosts.opened())

    async def reach(self) -> None:
        """Asks all hosts; one that answers will do."""
        done, failed = await self._ask_each(lambda line: line.call("list"))
        if failed and not done:
            raise failed[0]

    async def close(self) -> None:
        await super().close()
        await self._hosts.close()

    # -- made when first needed --------------------------------------------------------------------

    @cached_property
    def _boxes(self) -> SshSandboxes:
        return SshSandboxes(
            self._hosts, self._store_id, freed=lambda host: self._creating.free(host)
        )

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

    async def _ask_each(self, ask: Ask) -> tuple[list[object], list[FleetctlError]]:
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
        if asks_container(template):
            await self._contain(request, line, box)
        python = await machine_volumes.ensure_python(line, template.image)
        if python:
            await line.call("change", {"box": box, "fields": {"python": python}})

    async def _contain(self, request: RunRequest, line: SshLine, box: str) -> None:
        """Starts the container of a box. Raises AgentFault, and Unavailable."""
        template = request.template
        place = self._boxes.place_of(f"{line.name}/{box}")
        job = self._job(request.uid)
        await machine_containers.unpack_source(line, request, box=place, job=job)
        container = machine_containers.describe_container(
            template,
            self._hosts.settings.container,
            {it.name: volume_directory(line, it.name) for it in template.volumes},
            source=f"{place}/source",
        )
        fields = {"box": box, "container": container}
        await line.call("contain", fields, deadline_s=machine_volumes.BUILD_S)

    def _line_of(self, handle: str) -> tuple[AgentLine, str]:
        line = self._hosts.line(split_handle(handle)[0])
        return line, f"host {line.name}"

    async def _head(self, handle: str) -> tuple[str, str]:
        line = self._hosts.line(split_handle(handle)[0])
        return str(line.facts["address"]), line.host.interface or ""

    async def _work(self, request: RunRequest, handle: str) -> NodeWork:
        work = await super()._work(request, handle)
        host, box = split_handle(handle)
        line = self._hosts.line(host)
        # The agent has made all paths of volumes, for as long as the box lives.
        links = {it["path"] for it in links_of(request.template, line, box.partition("@")[0])}
        volumes = [
            {**it, "links": [path for path in it["links"] if path not in links]}
            for it in work.order["volumes"]
        ]
        order = {**work.order, "volumes": volumes}
        if not request.reusable:
            # All that it leaves are files, so its supervisor need not wait for whoever reads them.
            order["linger_s"] = 0.0
        return NodeWork(work.place, order)


_: type[Backend] = SshProvider
__: type[Relaying] = SshProvider
___: type[Reachable] = SshProvider
