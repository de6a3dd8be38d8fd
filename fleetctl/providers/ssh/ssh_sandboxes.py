"""The sandboxes of our store on all hosts, by handle `HOST/BOX@ID`: streamed, looked at, ended and
listed.

Made by ssh_provider.py; the shared part (providers/remote) calls its verbs. A run whose supervisor
died is over once its stream has shown the last line of its journal, and not before. A host that was
silent for longer than its lease has ended our work, or is no more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from fleetctl.common.errors import FleetctlError, Unavailable
from fleetctl.guest.nodes.gang import strip_node
from fleetctl.providers.contract.base import Owned
from fleetctl.providers.machines.agent_link import AgentChannel, SupervisorLost, follow_run
from fleetctl.providers.remote.gangs.joined_sandboxes import (
    NodeFacts,
    NodeSandboxes,
    facts_in,
    sandbox_in,
)
from fleetctl.providers.remote.runs.follower import SandboxOver
from fleetctl.providers.remote.sandboxes import sandbox_names
from fleetctl.providers.remote.sandboxes.sandbox_protocol import Cause, Fate, RunWork, StreamOffsets
from fleetctl.providers.ssh.ssh_hosts import SshHosts, SshLine

log = logging.getLogger("fleetctl.providers")

END_S = 60.0
LEASE_SLACK_S = 120.0
_LOST = {
    "restarted": Fate(Cause.LOST, "its host has restarted"),
    "expired": Fate(Cause.TIMEOUT, "no controller was there for the time of its lease"),
    "over": Fate(Cause.OUT_OF_MEMORY, "the process that looked after the run died"),
    "stale": Fate(Cause.UNBEGUN),
}


def split_handle(handle: str) -> tuple[str, str]:
    """Returns (the host, the box)."""
    host, _, box = handle.rpartition("/")
    return host, box


class SshSandboxes:
    """freed: called when a box is confirmed over."""

    def __init__(
        self, hosts: SshHosts, store_id: str, *, freed: Callable[[str], None] = lambda _: None
    ) -> None:
        self._hosts = hosts
        self._store_id = store_id
        self._freed = freed
        self._ended: set[str] = set()
        self._unread: dict[str, set[str]] = {}  # handle -> runs whose journal has more
        self._lost: set[str] = set()

    # -- the verbs of the shared part --------------------------------------------------------------

    async def stream(
        self,
        handle: str,
        run: str,
        work: RunWork | None,
        at: StreamOffsets,
    ) -> AsyncGenerator[bytes, None]:
        line, box = self._find(handle)
        # From now on the run may begin, end, and leave an ended box with all that it reports.
        self._unread.setdefault(handle, set()).add(run)
        async with line.asked(deadline_s=END_S):
            link = await line.link()
        try:
            async with aclosing(follow_run(link, box, run, work, at)) as frames:
                async for data in frames:
                    if b'{"e":"eof"' in data or b'{"e":"unbegun"' in data:
                        self._read_whole(handle, run)
                    yield data
        except SandboxOver as error:
            if isinstance(error, SupervisorLost):
                self._lost.add(handle)
            self._read_whole(handle, run)
            raise

    async def fate(self, handle: str) -> Fate | None:
        if handle in self._ended:
            return Fate(Cause.STOPPED)
        line, box = self._find(handle)
        if line.silent_s > self._hosts.settings.lease + LEASE_SLACK_S:
            return Fate(Cause.LOST, f"host `{line.name}` was silent for longer than its lease")
        state = (await line.call("look", {"box": box}))["state"]
        if state == "gone":
            return Fate(Cause.UNKNOWN)
        if handle in self._lost or not self._unread.get(handle):
            return _LOST.get(state)
        return None

    async def end(self, handle: str) -> None:
        line, box = self._find(handle)
        if line.silent_s <= self._hosts.settings.lease + LEASE_SLACK_S:
            reply = await line.call("end", {"box": box}, deadline_s=END_S)
            if not reply.get("ok"):
                raise Unavailable(f"processes of `{handle}` do not end", retry_after_s=1.0)
        self._ended.add(handle)
        self._lost.discard(handle)
        self._unread.pop(handle, None)
        self._freed(line.name)

    async def ask_stop(self, handle: str, run: str, grace_s: float) -> None:
        line, box = self._find(handle)
        await line.call("stop", {"box": box, "run": run, "grace_s": grace_s})

    async def find(self, run: str) -> str | None:
        """Returns the handle of the box of a run, or None where no host has it. Raises Unavailable
        when a host that may have it cannot be reached.
        """
        box = self.name_of(run)
        away: list[Unavailable] = []

        async def look(line: SshLine) -> str:
            try:
                reply = await line.call("look", {"box": box})
            except Unavailable as error:
                away.append(error)
                return ""
            ours = sandbox_names.is_of(reply["tags"], self._store_id, strip_node(run))
            return f"{line.name}/{box}@{reply['box_id']}" if ours else ""

        found = [it for it in await asyncio.gather(*map(look, self._hosts.lines())) if it]
        if not found and away:
            raise away[0]
        return found[0] if found else None

    async def line(self, handle: str, run: str) -> AgentChannel:
        """Opens a line of the relay; see RelayLines."""
        line, box = self._find(handle)
        async with line.asked():
            link = await line.link()
            return AgentChannel(link.stream("relay", {"box": box, "run": run}))
        raise AssertionError

    async def node_facts(self, handle: str) -> NodeFacts:
        line, box = self._find(handle)
        reply = await line.call("look", {"box": box})
        return facts_in(reply["tags"], str(line.facts["address"]))

    # -- for the provider alone --------------------------------------------------------------------

    def name_of(self, run: str) -> str:
        """A machine may have the work of several stores."""
        return sandbox_names.sandbox_name(f"{self._store_id}-{run}")

    async def is_ours(self, handle: str) -> bool:
        line, box = self._find(handle)
        if line.silent_s > self._hosts.settings.lease + LEASE_SLACK_S:
            return True  # it is ended without a call
        tags = (await line.call("look", {"box": box}))["tags"]
        return sandbox_names.is_ours(tags, self._store_id)

    async def owned(self) -> list[Owned]:
        """Returns every live sandbox of our store on the hosts that can be asked now."""
        found = []
        for line in self._hosts.lines():
            try:
                boxes = (await line.call("list"))["boxes"]
            except FleetctlError as error:
                log.info("host not listed", extra={"host": line.name, "error": str(error)})
                continue
            for box in boxes:
                if sandbox_names.is_ours(box["tags"], self._store_id):
                    handle = f"{line.name}/{box['box']}"
                    since_s = sandbox_names.made_at_s(box["tags"])
                    found.append(Owned(sandbox_in(box["tags"]), handle, since_s))
        return found

    def place_of(self, handle: str) -> str:
        """Returns the directory of a box on its host, to which there is a line."""
        line, box = self._find(handle)
        return f"{line.facts['root']}/boxes/{box.partition('@')[0]}"

    # -- helpers -----------------------------------------------------------------------------------

    def _find(self, handle: str) -> tuple[SshLine, str]:
        host, box = split_handle(handle)
        return self._hosts.line(host), box

    def _read_whole(self, handle: str, run: str) -> None:
        self._unread.get(handle, set()).discard(run)


_: type[NodeSandboxes] = SshSandboxes
