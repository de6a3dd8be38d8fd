"""Hosts as `exec`, `cp` and `orphans` enter them: commands that `ssh` itself carries, files in
volumes, and sandboxes that carry a tag of any store.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.orphans import GONE_HINT, VOLUME, Orphan, Orphans, a_volume
from fleetctl.providers.contract.sandbox_access import ENDED_HINT, Entering, ExecStreams, ExecTarget
from fleetctl.providers.contract.volume_files import VolumeFiles
from fleetctl.providers.machines.carried_command import carry_command
from fleetctl.providers.machines.machine_containers import enter_container
from fleetctl.providers.machines.machine_volumes import MachineVolumes
from fleetctl.providers.machines.openssh import explain_failure, sockets_in, ssh_command
from fleetctl.providers.remote.gangs.joined_sandboxes import first_of
from fleetctl.providers.remote.sandboxes import exec_channel, sandbox_names
from fleetctl.providers.remote.sandboxes.sandbox_names import of_tags
from fleetctl.providers.ssh.ssh_creator import volume_directory
from fleetctl.providers.ssh.ssh_hosts import SshHosts, SshLine
from fleetctl.providers.ssh.ssh_sandboxes import split_handle

FAILED = 255  # exit code of ssh itself, and of few programs


class SshEntering:
    terminal = True
    binary = True

    def __init__(self, home: Path, account: Account) -> None:
        self._sockets = sockets_in(account.directory(home))
        self._hosts = SshHosts(home, lambda: account)

    async def execute(self, place: ExecTarget, argv: tuple[str, ...], streams: ExecStreams) -> int:
        host, box = split_handle(first_of(place.handle))
        line = self._hosts.line(host)
        reply = await line.call("look", {"box": box})
        if reply["state"] not in ("new", "live"):
            raise Refused(
                f"the sandbox of run `{place.run}` is gone, so no command can join it",
                hint=ENDED_HINT,
            )
        directory = f"{line.facts['root']}/boxes/{box.partition('@')[0]}"
        given = exec_channel.exec_variables(place)
        words = [f"{name}={value}" for name, value in given.items()]
        words += exec_channel.exec_command(place, argv, work=f"{directory}/state/work")
        tty = streams.tty is not None
        words = enter_container(reply, words, home=f"{directory}/home", terminal=tty)
        command = ssh_command(line.target, words, sockets=self._sockets, terminal=tty)
        code, said = await carry_command(command, streams)
        if code == FAILED and ("Connection" in said or "closed" in said):
            raise Unavailable(
                f"the command beside run `{place.run}` was lost: {said.splitlines()[-1]}"
            ) from await explain_failure(line.target, said)
        return code

    async def link(self, place: ExecTarget, port: int) -> str:
        """Returns "": a command carries the bytes, as the host's ports may be closed to us."""
        del place, port
        return ""

    async def close(self) -> None:
        await self._hosts.close()


_: type[Entering] = SshEntering


class SshFiles(MachineVolumes[SshLine]):
    def __init__(self, home: Path, account: Account, *, store_id: str = "") -> None:
        del store_id  # no sandbox is needed for a look
        super().__init__(self._open_lines, volume_directory)
        self._home = home
        self._account = account

    @asynccontextmanager
    async def _open_lines(self) -> AsyncIterator[list[SshLine]]:
        """Yields lines to all hosts. Raises Unavailable where one cannot be reached."""
        hosts = SshHosts(self._home, lambda: self._account)
        try:
            lines = hosts.lines()
            for line in lines:
                await line.link()
            yield lines
        finally:
            await hosts.close()


__: type[VolumeFiles] = SshFiles


class SshOrphans:
    """Lines of its own, made at the first call."""

    def __init__(self, home: Path, account: Account) -> None:
        self._account = account
        self._hosts = SshHosts(home, lambda: account)

    async def find_all(self) -> Sequence[Orphan]:
        if not self._account.settings:
            return []  # the built-in name, of which no machine was declared
        found: list[Orphan] = []
        volumes: set[str] = set()
        for line in self._hosts.lines():
            for box in (await line.call("list"))["boxes"]:
                orphan = of_tags(self._account.name, f"{line.name}/{box['box']}", box["tags"])
                if orphan is not None:
                    found.append(orphan)
            place = {"top": volume_directory(line, "").rstrip("/"), "path": "", "recursive": False}
            entries = (await line.call("entries", place))["entries"] or []
            volumes |= {name for name, is_directory, *_ in entries if is_directory}
        return [*found, *(a_volume(self._account.name, name) for name in sorted(volumes))]

    async def remove(self, orphan: Orphan) -> None:
        if orphan.kind == VOLUME:
            for line in self._hosts.lines():
                await line.link()
                place = {"top": volume_directory(line, orphan.handle), "path": ""}
                await line.call("remove", {**place, "recursive": True, "whole": True})
            return
        host, box = split_handle(orphan.handle)
        if not (await self._hosts.line(host).call("end", {"box": box}))["ok"]:
            raise Unavailable(f"processes of sandbox `{orphan.handle}` do not end")

    async def claim(self, orphan: Orphan, store_id: str, uid: str) -> None:
        host, box = split_handle(orphan.handle)
        line = self._hosts.line(host)
        tags = (await line.call("look", {"box": box}))["tags"]
        claimed = sandbox_names.claim_tags(tags, store_id, uid)
        if not (await line.call("change", {"box": box, "fields": {"tags": claimed}}))["ok"]:
            raise Refused(f"sandbox `{orphan.handle}` is gone by now", hint=GONE_HINT)

    async def close(self) -> None:
        await self._hosts.close()


___: type[Orphans] = SshOrphans
