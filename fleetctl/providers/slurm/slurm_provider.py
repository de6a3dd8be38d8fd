"""Provider `slurm`: the four verbs for runs, and the assets, in a Slurm cluster.

Built by wiring; called by the engine. It keeps no truth of its own: boxes in the shared directory
carry their names and tags, and the scheduler has their jobs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from fleetctl.common.errors import Refused
from fleetctl.common.finding import Finding, Severity
from fleetctl.controllers.model import Alive, Observation
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.base import (
    Backend,
    Reachable,
    RunRef,
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
    first_of,
)
from fleetctl.providers.remote.runs.guest_order import (
    INPUTS_BYTES_MAX,
)
from fleetctl.providers.slurm.slurm_creator import SlurmCreator
from fleetctl.providers.slurm.slurm_login import SlurmLogin, settings_of
from fleetctl.providers.slurm.slurm_sandboxes import SlurmSandboxes, split_handle
from fleetctl.specs.blocks.machines import LEASE_S
from fleetctl.specs.blocks.template import Template

CONTRACT = Contract(
    visibility_bound_s=2.0,  # of one `squeue`, which all that ask share
    list_shows_finished=False,
    strong_get=False,
    max_lifetime_s=None,
    usual_lifetime_s=LEASE_S,
    billing_quantum_s=0.0,
    calls_per_s=500.0,
    calls_at_once=512,
    call_deadline_s=900.0,
    default_parallelism=64,  # the queue orders what waits
    poll_s=30.0,
    two_phase=True,
    nodes_max=NODES_MAX,
    inputs_bytes_max=INPUTS_BYTES_MAX,
)


class SlurmProvider(MachineProvider):
    contract = CONTRACT
    sort = "slurm"
    no_functions = "Slurm has no functions"

    def _open(self) -> None:
        self._login = SlurmLogin(self._home, self._account)

    async def start(self, request: RunRequest) -> str:
        machine_volumes.check_image(request.template.image, "slurm")
        if request.endpoints is not None:
            raise Refused(
                "provider `slurm` carries no calls of endpoints",
                hint="place it on another provider, or use `reach: Direct` in the Endpoint",
            )
        return await self._start(request)

    async def observe(self, runs: Sequence[RunRef]) -> Sequence[Observation]:
        return [await self._with_halt(it) for it in await super().observe(runs)]

    async def ensure_volume(self, name: str) -> None:
        await self._login.line.link()
        await self._login.line.call("ensure", {"top": self._volume(name), "path": ""})

    async def remove_volume(self, name: str) -> None:
        if not self._account().settings:
            return
        await self._login.line.link()
        place = {"top": self._volume(name), "path": "", "recursive": True, "whole": True}
        await self._login.line.call("remove", place)

    def _obstacles(self, template: Template, account: Account) -> Iterator[Finding]:
        return find_obstacles(template, account)

    async def reach(self) -> None:
        await self._login.queue.jobs()

    def unresolved(self) -> bool:
        watching = "_boxes" in self.__dict__ and self._boxes.ended_jobs.busy
        return watching or super().unresolved()

    async def close(self) -> None:
        await super().close()
        await self._boxes.ended_jobs.close()
        await self._login.close()

    @cached_property
    def _boxes(self) -> SlurmSandboxes:
        return SlurmSandboxes(self._login, self._store_id)

    @cached_property
    def _creating(self) -> SlurmCreator:
        return SlurmCreator(
            self._login,
            self._boxes,
            prepare=self._prepare,
            store_id=self._store_id,
            notify=self._notify,
        )

    async def _with_halt(self, seen: Observation) -> Observation:
        """Returns the observation with the reason why its job was made to pause."""
        if not isinstance(seen, Alive) or not seen.handle or seen.held:
            return seen
        return replace(seen, held=await self._boxes.halt(first_of(seen.handle)))

    def _volume(self, name: str) -> str:
        return f"{self._login.root}/volumes/{name}"

    async def _prepare(self, request: RunRequest, box: str) -> None:
        template = request.template
        line = self._login.line
        if template.source is not None:
            await machine_volumes.bring_source(line, template.source, self._job(request.uid))
        container = await self._describe_container(request, box)
        mounts = [
            {"path": path, "target": self._volume(mount.name)}
            for mount in template.volumes
            for path in (mount.mount_path, *mount.links)
            if container is None
        ]
        python = await machine_volumes.ensure_python(line, template.image)
        interface = self._login.settings.interface or ""
        fields = {
            "mounts": mounts,
            "python": python,
            "interface": interface,
            "container": container,
        }
        await line.call("change", {"box": box, "fields": fields})

    async def _describe_container(self, request: RunRequest, box: str) -> dict[str, object] | None:
        """Returns what the job's program starts; None for a task without an image."""
        template, place = request.template, self._boxes.place_of(f"/{box}")
        if not asks_container(template):
            return None
        job, line = self._job(request.uid), self._login.line
        await machine_containers.unpack_source(line, request, box=place, job=job)
        targets = {it.name: self._volume(it.name) for it in template.volumes}
        settings = self._login.settings.container
        return machine_containers.describe_container(template, settings, targets, source="")

    async def _work(self, request: RunRequest, handle: str) -> NodeWork:
        work = await super()._work(request, handle)
        if asks_container(request.template):
            return work
        # The job's program has made all paths of volumes, for as long as it runs.
        volumes = [{**it, "links": []} for it in work.order["volumes"]]
        return NodeWork(work.place, {**work.order, "volumes": volumes})

    async def _stop(self, ref: RunRef, *, grace_s: float) -> None:
        if self._account().settings:
            await super()._stop(ref, grace_s=grace_s)

    def _line_of(self, handle: str) -> tuple[AgentLine, str]:
        return self._login.line, f"Slurm job {split_handle(handle)[0]}"

    async def _head(self, handle: str) -> tuple[str, str]:
        facts = await self._boxes.node_facts(handle)
        return facts.address, self._login.settings.interface or ""


def find_obstacles(template: Template, account: Account) -> Iterator[Finding]:
    """Finds work that no cluster can take, without a connection."""
    yield from machine_volumes.find_obstacles(template, "slurm", SlurmProvider.no_functions)
    if template.source is not None and template.source.mount_path is not None:
        message = "a source is beside its task in the shared directory, at no path of its own"
        yield Finding(("source", "mountPath"), message, "leave `mountPath` out")
    if template.endpoints:
        message = "provider `slurm` carries no calls of endpoints"
        yield Finding(("endpoints",), message, "place it on another provider")
    try:
        settings_of(account)
    except Refused as error:
        yield Finding((), str(error), error.hint, Severity.LATER)


_: type[Backend] = SlurmProvider
__: type[Reachable] = SlurmProvider
