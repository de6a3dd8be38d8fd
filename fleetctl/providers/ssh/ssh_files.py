"""Files in the volumes of provider `ssh`: directories of its hosts; see machine_volumes.py."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.volume_files import VolumeFiles
from fleetctl.providers.machines.machine_volumes import MachineVolumes
from fleetctl.providers.ssh.ssh_creator import volume_directory
from fleetctl.providers.ssh.ssh_hosts import SshHosts, SshLine


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


_: type[VolumeFiles] = SshFiles
