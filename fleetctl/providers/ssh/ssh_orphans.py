"""Sandboxes on hosts of one's own that carry a tag of any store, and the volumes there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.orphans import GONE_HINT, VOLUME, Orphan, Orphans, a_volume
from fleetctl.providers.remote.sandboxes import sandbox_names
from fleetctl.providers.remote.sandboxes.sandbox_names import of_tags
from fleetctl.providers.ssh.ssh_creator import volume_directory
from fleetctl.providers.ssh.ssh_hosts import SshHosts
from fleetctl.providers.ssh.ssh_sandboxes import split_handle


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


_: type[Orphans] = SshOrphans
