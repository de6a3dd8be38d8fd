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
from fleetctl.guest.nodes.gang import whole_name
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.base import (
    Backend,
    Owned,
    Reachable,
    RunRef,
    RunRequest,
    no_network,
    no_pods,
)
from fleetctl.providers.contract.terms import Contract
from fleetctl.providers.machines import machine_volumes
from fleetctl.providers.remote import remote_provider
from fleetctl.providers.remote.gangs.gang_nodes import GangNodes, Meeting, NodeWork
from fleetctl.providers.remote.gangs.joined_sandboxes import (
    NODES_MAX,
    JoinedSandboxes,
    first_of,
    nodes_of,
    port_of,
)
from fleetctl.providers.remote.remote_provider import RemoteProvider
from fleetctl.providers.remote.runs.guest_order import (
    INPUTS_BYTES_MAX,
    SandboxContext,
    guest_order,
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


class SlurmProvider(RemoteProvider):
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
        asked = {ref.run: ref for ref in runs if not self._is_making(ref)}
        for ref in asked.values():
            await self._nodes.join(ref)
        seen = await self._runs.observe(list(asked.values()))
        return [await self._with_halt(self._nodes.seen(it, asked[it.run])) for it in seen]

    async def stop(self, ref: RunRef, *, grace_s: float) -> None:
        await self._creating.makings.give_up(ref.run)
        if self._account().settings:
            await self._nodes.join(ref)
            await self._stop(ref, grace_s=grace_s)

    async def owned(self) -> Sequence[Owned]:
        # Without a cluster, or without runs there, the sweep must cost no command.
        if not self._account().settings or not remote_provider.any_left(self._jobs):
            return []
        return await self._sandboxes.owned()

    async def ensure_volume(self, name: str) -> None:
        await self._login.line.link()
        await self._login.line.call("ensure", {"top": self._volume(name), "path": ""})

    async def remove_volume(self, name: str) -> None:
        if not self._account().settings:
            return
        await self._login.line.link()
        place = {"top": self._volume(name), "path": "", "recursive": True, "whole": True}
        await self._login.line.call("remove", place)

    def usd_per_s(self, template: Template) -> float | None:
        return 0.0  # a cluster of one's own sends no bill

    def _obstacles(self, template: Template, account: Account) -> Iterator[Finding]:
        return find_obstacles(template, account)

    def lacks(self, template: Template) -> str:
        found = find_obstacles(template, self._account())
        return next((it.what for it in found if it.severity is Severity.NEVER), "")

    async def reach(self) -> None:
        await self._login.queue.jobs()

    def unresolved(self) -> bool:
        watching = "_boxes" in self.__dict__ and self._boxes.ended_jobs.busy
        return watching or super().unresolved()

    async def close(self) -> None:
        await super().close()
        await self._sandboxes.close()
        await self._boxes.ended_jobs.close()
        await self._login.close()

    @cached_property
    def _boxes(self) -> SlurmSandboxes:
        return SlurmSandboxes(self._login, self._store_id)

    @cached_property
    def _sandboxes(self) -> JoinedSandboxes:
        return JoinedSandboxes(self._boxes)

    @cached_property
    def _nodes(self) -> GangNodes:
        return GangNodes(self._sandboxes, self._runs, self._hand_in)

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
        mounts = [
            {"path": path, "target": self._volume(mount.name)}
            for mount in template.volumes
            for path in (mount.mount_path, *mount.links)
        ]
        python = await machine_volumes.ensure_python(line, template.image)
        interface = self._login.settings.interface or ""
        fields = {"mounts": mounts, "python": python, "interface": interface}
        await line.call("change", {"box": box, "fields": fields})

    async def _begin(self, request: RunRequest) -> None:
        """Begins the run. Raises TimeoutError without an answer in time: the run may have begun."""
        handles = nodes_of(request.handle)
        await self._login.line.link()
        if len(handles) == 1:
            work = await self._work(request, request.handle)
            await self._hand_in(request, work.place, work.order)
            return

        async def work_of(rank: int) -> NodeWork:
            return await self._work(request, handles[rank])

        async def meet(secret: str) -> Meeting:
            head = await self._boxes.node_facts(handles[0])
            return Meeting(head.address, port_of(secret), self._login.settings.interface or "")

        await self._nodes.begin(request, work_of, meet, tokens=self._job(request.uid))

    async def _work(self, request: RunRequest, handle: str) -> NodeWork:
        place = self._boxes.place_of(handle)
        source = request.template.source
        directory = machine_volumes.source_directory(source, place) if source is not None else None
        setup = await machine_volumes.setup_commands(
            request,
            root=self._login.root,
            directory=directory or "",
            job=self._job(request.uid),
        )
        note = f"Slurm job {split_handle(handle)[0]}"
        context = SandboxContext(handle=request.handle, setup=setup, source=directory, note=note)
        order = guest_order(request, context)
        env = machine_volumes.order_variables(order, request.template.image)
        return NodeWork(context, {**order, "env": env})

    def _changed(self, run: str) -> None:
        super()._changed(whole_name(run))


def find_obstacles(template: Template, account: Account) -> Iterator[Finding]:
    """Finds work that no cluster can take, without a connection."""
    if template.is_function:
        hint = "use a sandbox for each task, or place it on `modal` or `local`"
        yield Finding(("runtime",), "Slurm has no functions", hint)
    if template.network is not None:
        yield no_network("slurm")
    if template.kubernetes is not None:
        yield no_pods("slurm")
    if template.source is not None and template.source.mount_path is not None:
        message = "a source is beside its task in the shared directory, at no path of its own"
        yield Finding(("source", "mountPath"), message, "leave `mountPath` out")
    if template.endpoints:
        message = "provider `slurm` carries no calls of endpoints"
        yield Finding(("endpoints",), message, "place it on another provider")
    try:
        machine_volumes.check_image(template.image, "slurm")
    except Refused as error:
        yield Finding(("image",), str(error), error.hint)
    try:
        settings_of(account)
    except Refused as error:
        yield Finding((), str(error), error.hint, Severity.LATER)


_: type[Backend] = SlurmProvider
__: type[Reachable] = SlurmProvider
