"""Makes sandboxes on hosts: one for each run, also after repeated requests, on the least busy host
where it fits; otherwise it waits in line for one to end.

Called by ssh_provider.py. Of starts of one size only the first asks the hosts, in turn.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence, Set

from fleetctl.common.errors import FleetctlError, Refused, Unavailable
from fleetctl.guest.nodes.gang import node_name
from fleetctl.providers.contract.base import Notify, RunRequest
from fleetctl.providers.machines.agent_link import AgentFault
from fleetctl.providers.machines.machine_containers import (
    INSTALL,
    NO_ENGINE,
    asks_container,
    refuse_fault,
)
from fleetctl.providers.machines.openssh import plain_command
from fleetctl.providers.remote.gangs.joined_sandboxes import join_handles, node_tags, nodes_asked
from fleetctl.providers.remote.sandboxes import sandbox_names
from fleetctl.providers.remote.sandboxes.pending_creates import PendingCreates
from fleetctl.providers.ssh.ssh_hosts import SshHosts, SshLine
from fleetctl.providers.ssh.ssh_sandboxes import SshSandboxes
from fleetctl.specs.blocks.template import Template

PATIENCE_S = 20.0
LOOK_S = 1.0  # between two tries for a slot that another controller may free
AGAIN_S = 30.0  # waiting callers are notified at once when it is their turn; this is the net
GIVE_UP_S = 10.0
_FIXES = {
    "path": "mount it below your home, such as /home/me/data, or read $FLEETCTL_VOLUME_...",
    "python": "install Python 3.9 or later on a host, or write it as `script` or `command`",
    "engine": f"install one there, such as by `{INSTALL}`, or leave out `image.registry`",
}
_LESS = "ask for less in `resources`, or add a host to the Provider object"
Prepare = Callable[[RunRequest, SshLine, str], Awaitable[None]]  # the last: a box
Claim = tuple[SshLine, str]  # a box with its id on a host


class SshCreator:
    """prepare: brings what must be on the host before the work begins."""

    def __init__(
        self,
        hosts: SshHosts,
        sandboxes: SshSandboxes,
        *,
        prepare: Prepare,
        store_id: str,
        notify: Notify,
    ) -> None:
        self._hosts = hosts
        self._sandboxes = sandboxes
        self._prepare = prepare
        self._store_id = store_id
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._freed = asyncio.Event()
        self._busy: Counter[str] = Counter()  # boxes of ours by host
        self._why: dict[str, str] = {}  # run -> what it waits for
        self.makings = PendingCreates(notify, give_up_s=GIVE_UP_S)

    def free(self, host: str) -> None:
        """Notes that a box on that host has ended."""
        self._busy[host] -= 1
        self._freed.set()

    async def make(self, request: RunRequest) -> str:
        """Returns the handle. Raises Unavailable with the reason Queued while all slots are taken;
        then `notify` is called when one was found.
        """
        making = self.makings.get(request.run)
        making = making or self.makings.begin(request.run, self._make(request))
        handle = await self.makings.handle(making, patience=asyncio.sleep(PATIENCE_S))
        if handle is None:
            since = time.strftime("%H:%M:%S", time.gmtime(making.since_s))
            why = self._why.get(request.run, "the hosts are being asked")
            raise Unavailable(
                f"waits for a host since {since} UTC: {why}",
                reason="Queued",
                retry_after_s=AGAIN_S,
                perhaps_made=True,
            )
        return handle

    async def _make(self, request: RunRequest) -> str:
        size = json.dumps(
            [_size_of(request.template), [it.name for it in self._hosts.settings.hosts]]
        )
        try:
            async with self._turns[size]:
                claims = await self._claim_boxes(request)
            return await self._prepare_boxes(request, claims)
        finally:
            self._why.pop(request.run, None)

    async def _prepare_boxes(self, request: RunRequest, claims: Sequence[Claim]) -> str:
        image = request.template.image
        registry = image.registry if image is not None else None
        handles = [f"{line.name}/{box}" for line, box in claims]
        failed = claims[0][0]
        try:
            for line, box in claims:
                failed = line
                what = f"pulling image `{registry}`" if registry else "preparing what it needs"
                self._why[request.run] = f"host `{line.name}` has room and is {what}"
                await self._prepare(request, line, box)
        except AgentFault as error:
            await self._end(handles)
            if registry:
                raise refuse_fault(
                    error,
                    f"host `{failed.name}`",
                    engine=failed.facts["containers"],
                    reach=plain_command(failed.target),
                    image=registry,
                ) from error
            raise Refused(
                f"host `{failed.name}` cannot make the image: {error}",
                hint="change `image`, or install uv on the host",
            ) from error
        except Refused:
            await self._end(handles)
            raise
        except Unavailable as error:
            error.perhaps_made = True
            raise
        return join_handles(handles)

    async def _end(self, handles: Sequence[str]) -> None:
        for handle in handles:
            await self._sandboxes.end(handle)

    async def _claim_boxes(self, request: RunRequest) -> list[Claim]:
        """Returns, for each node, the host that has its box, and the box with its id."""
        while True:
            self._freed.clear()
            found, why = await self._try_nodes(request)
            if found:
                return found
            self._why[request.run] = why
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._freed.wait()
            except TimeoutError:
                continue

    async def _try_nodes(self, request: RunRequest) -> tuple[list[Claim], str]:
        """Returns (a claim for each node, each on a host of its own; why there are none now). A
        part of them is given back at once: another attempt may hold the rest and wait for it.
        """
        count = nodes_asked(request.template, len(self._hosts.settings.hosts))
        claims: list[Claim] = []
        for rank in range(count):
            taken = {line.name for line, _ in claims}
            found, why = await self._try_hosts(request, rank, taken)
            if found is None:
                await self._end([f"{line.name}/{box}" for line, box in claims])
                beside = f"{rank} of {count} hosts are free; " if count > 1 else ""
                return [], f"{beside}{why}"
            claims.append(found)
        return claims, ""

    async def _try_hosts(
        self, request: RunRequest, rank: int, taken: Set[str]
    ) -> tuple[Claim | None, str]:
        """Returns (the host and box of a node, why there is none now). taken: hosts of other
        nodes. Raises Refused where no host will ever do, and Unavailable where none can be asked.
        """
        lines = [it for it in self._hosts.lines() if it.name not in taken]
        box = self._sandboxes.name_of(node_name(request.run, rank))
        replies = await asyncio.gather(
            *(self._look(line, request, box) for line in lines), return_exceptions=True
        )
        away: list[FleetctlError] = []
        open_lines: list[SshLine] = []
        for line, reply in zip(lines, replies, strict=True):
            if isinstance(reply, FleetctlError):
                away.append(reply)
            elif isinstance(reply, BaseException):
                raise reply
            elif reply:
                return (line, reply), ""  # an earlier request made it
            else:
                open_lines.append(line)
        if not open_lines:
            raise away[0]
        faults: list[AgentFault] = []
        for line in sorted(open_lines, key=self._share):
            try:
                made = await self._claim(line, request, rank, box)
            except AgentFault as error:
                faults.append(AgentFault(error.sort, f"`{line.name}`: {error}"))
            except Unavailable as error:
                away.append(error)
            else:
                self._busy[line.name] += 1
                return (line, made), ""
        why = "; ".join([*map(str, faults), *map(str, away)])
        if not away and faults and all(it.sort != "full" for it in faults):
            hint = next((_FIXES[it.sort] for it in faults if it.sort in _FIXES), _LESS)
            raise Refused(f"no host can take this task: {why}", hint=hint)
        return None, why

    async def _look(self, line: SshLine, request: RunRequest, box: str) -> str:
        """Returns the node's box with its id; "" when it is not on this host."""
        reply = await line.call("look", {"box": box})
        if sandbox_names.is_of(reply["tags"], self._store_id, request.run):
            return f"{box}@{reply['box_id']}"
        return ""

    def _share(self, line: SshLine) -> float:
        return self._busy[line.name] / (line.host.slots or line.facts["cpu"])

    async def _claim(self, line: SshLine, request: RunRequest, rank: int, box: str) -> str:
        """Returns the box with its id. Raises AgentFault and Unavailable."""
        facts, host = line.facts, line.host
        count = nodes_asked(request.template, len(self._hosts.settings.hosts))
        cpu, memory, gpu, gpus = _size_of(request.template)
        if why := line.lacks(request):
            raise AgentFault("python", why)
        if asks_container(request.template) and facts.get("containers", NO_ENGINE) == NO_ENGINE:
            raise AgentFault("engine", "it has no podman or docker")
        if cpu > facts["cpu"]:
            raise AgentFault("never", f"it has {facts['cpu']} cores")
        if memory > facts["memory"]:
            raise AgentFault("never", f"it has {facts['memory'] >> 30} GiB of memory")
        size = {
            "slots": host.slots or facts["cpu"],
            "cpu": facts["cpu"],
            "memory": facts["memory"],
            "gpus": len(facts["gpus"]) if host.gpus == "auto" else host.gpus,
        }
        order = {
            "tags": {
                **sandbox_names.sandbox_tags(request, self._store_id, time.time()),
                **node_tags(request, rank, count),
            },
            "cpu": cpu,
            "memory": memory,
            "gpu": gpu,
            "gpus": gpus,
            "links": links_of(request.template, line, box),
            "size": size,
        }
        made = (await line.call("make", {"box": box, "order": order}))["box"]
        return f"{box}@{made['id']}"


def _size_of(template: Template) -> tuple[float, int, str, int]:
    """Returns (cores, bytes of memory, sort of GPU, GPUs)."""
    asked = template.sandbox_resources
    gpu = asked.gpu
    return (
        asked.cpu or 0.0,
        asked.memory or 0,
        gpu.name if gpu is not None else "",
        gpu.count if gpu is not None else 0,
    )


def volume_directory(line: SshLine, volume: str) -> str:
    return f"{line.host.shared or line.facts['root'] + '/volumes'}/{volume}"


def links_of(template: Template, line: SshLine, box: str) -> list[dict[str, str]]:
    """Returns the paths that lead to directories of ours while the box lives; a container has all
    of them by itself.
    """
    if asks_container(template):
        return []
    found = [
        {"path": path, "target": volume_directory(line, mount.name)}
        for mount in template.volumes
        for path in (mount.mount_path, *mount.links)
    ]
    source = template.source
    if source is not None and source.mount_path is not None:
        target = f"{line.facts['root']}/boxes/{box}/source"
        found.append({"path": source.mount_path.rstrip("/"), "target": target})
    return found
