"""Files in the volumes of provider `slurm`: directories in the shared one of its cluster, as its
login shows them; see machine_volumes.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.volume_files import VolumeFiles
from fleetctl.providers.machines.agent_line import AgentLine
from fleetctl.providers.machines.machine_volumes import MachineVolumes
from fleetctl.providers.slurm.slurm_login import SlurmLogin


class SlurmFiles(MachineVolumes[AgentLine]):
    def __init__(self, home: Path, account: Account, *, store_id: str = "") -> None:
        del store_id  # no job is needed for a look
        super().__init__(self._open_lines, _volume_directory)
        self._home = home
        self._account = account

    @asynccontextmanager
    async def _open_lines(self) -> AsyncIterator[list[AgentLine]]:
        """Yields the line to the login. Raises Unavailable where it cannot be reached."""
        login = SlurmLogin(self._home, lambda: self._account)
        try:
            await login.line.link()
            yield [login.line]
        finally:
            await login.close()


def _volume_directory(line: AgentLine, volume: str) -> str:
    return f"{line.facts['root']}/volumes/{volume}"


_: type[VolumeFiles] = SlurmFiles
