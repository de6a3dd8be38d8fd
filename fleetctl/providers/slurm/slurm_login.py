"""The login of a cluster: its settings, the line to its agent, and its queue.

Made by the provider and by commands of users. Without a `login` this machine is one.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.providers.contract.account import Account, AccountNow
from fleetctl.providers.machines.agent_bundle import BOOT, bundle
from fleetctl.providers.machines.agent_line import AgentLine
from fleetctl.providers.machines.agent_link import AgentFault, AgentLink, LineBroken, open_link
from fleetctl.providers.machines.openssh import (
    OPEN_S,
    SshTarget,
    open_ssh_link,
    sockets_in,
    ssh_command,
)
from fleetctl.providers.slurm.slurm_queue import SlurmQueue
from fleetctl.specs.blocks.machines import SlurmSettings

HERE = "this machine"
NO_CLUSTER_HINT = (
    "declare it: kind: Provider, metadata: {name: slurm},"
    " spec: {slurm: {sharedDir: ~/.fleetctl, partition: gpu}}"
)
# The agent's own boxes are those of the scheduler: no lease of a login ends a job.
_HELLO = {"fleet": "", "lease_s": 0}


def settings_of(account: Account) -> SlurmSettings:
    """Raises Refused without a cluster."""
    if not account.settings.get("sharedDir"):
        raise Refused(f"provider `{account.name}` has no cluster", hint=NO_CLUSTER_HINT)
    return SlurmSettings.model_validate(dict(account.settings))


class SlurmLogin:
    def __init__(self, home: Path, account: AccountNow) -> None:
        self._home = home
        self._account = account

    @property
    def settings(self) -> SlurmSettings:
        return settings_of(self._account())

    @cached_property
    def line(self) -> AgentLine:
        """Raises Refused without a cluster."""
        login = self.settings.login
        return AgentLine(login.name if login is not None else HERE, self._open)

    @cached_property
    def queue(self) -> SlurmQueue:
        return SlurmQueue(self.line)

    @property
    def root(self) -> str:
        """The shared directory, as the login names it; known once there was a line."""
        return str(self.line.facts["root"])

    def command(self, words: list[str], *, terminal: bool) -> list[str]:
        """Returns the command that runs `words` on the login."""
        target = self._target
        if target is None:
            return words
        sockets = sockets_in(self._account().directory(self._home))
        return ssh_command(target, words, sockets=sockets, terminal=terminal)

    @property
    def _target(self) -> SshTarget | None:
        settings = self.settings
        host = settings.login
        if host is None:
            return None
        return SshTarget(
            name=host.name,
            host=host.host,
            user=host.user or "",
            port=host.port or 0,
            identity_file=host.identity_file or "",
            jump=host.jump or "",
            config=settings.config or "",
            python=host.python or "python3",
            directory=settings.shared_dir,
        )

    async def _open(self) -> AgentLink:
        target = self._target
        if target is not None:
            sockets = sockets_in(self._account().directory(self._home))
            return await open_ssh_link(target, sockets=sockets, hello=_HELLO)
        words = ["python3", "-I", "-S", "-c", BOOT, self.settings.shared_dir, bundle()[0]]
        try:
            return await open_link(words, hello=_HELLO, deadline_s=OPEN_S)
        except (AgentFault, LineBroken, OSError, TimeoutError) as error:
            raise Unavailable(
                f"no agent begins on this machine: {error}",
                reason="Unreachable",
                retry_after_s=5.0,
                hint=f"look at it: ls -ld {self.settings.shared_dir}; df -h",
            ) from error

    async def close(self) -> None:
        if "line" in self.__dict__:
            await self.line.close()
