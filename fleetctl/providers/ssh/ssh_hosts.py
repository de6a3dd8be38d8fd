"""The hosts of a Provider object, and the line to each: opened when it is first needed, and again
after it broke.

Made by the provider and by commands of users.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.providers.contract.account import Account, AccountNow
from fleetctl.providers.machines.agent_line import AWAY_S, AgentLine
from fleetctl.providers.machines.openssh import SshTarget, open_ssh_link, sockets_in
from fleetctl.specs.blocks.machines import SshHost, SshSettings

NO_HOSTS_HINT = (
    "declare them: kind: Provider, metadata: {name: ssh}, spec: {ssh: {hosts: [gpu1.lab]}}"
)


def settings_of(account: Account) -> SshSettings:
    """Raises Refused without hosts."""
    if not account.settings.get("hosts"):
        raise Refused(f"provider `{account.name}` has no hosts", hint=NO_HOSTS_HINT)
    return SshSettings.model_validate(dict(account.settings))


def target_of(host: SshHost, settings: SshSettings) -> SshTarget:
    return SshTarget(
        name=host.name,
        host=host.host,
        user=host.user or "",
        port=host.port or 0,
        identity_file=host.identity_file or "",
        jump=host.jump or "",
        config=settings.config or "",
        python=host.python or "python3",
        directory=host.directory,
    )


class SshLine(AgentLine):
    """The line to one host."""

    def __init__(
        self, host: SshHost, target: SshTarget, *, sockets: Path, hello: Mapping[str, object]
    ) -> None:
        super().__init__(host.name, lambda: open_ssh_link(target, sockets=sockets, hello=hello))
        self.host = host
        self.target = target


class SshHosts:
    """The lines to all hosts. fleet: the tag of our store, whose leases the lines renew; "" for a
    command of a user.
    """

    def __init__(self, home: Path, account: AccountNow, *, fleet: str = "") -> None:
        self._home = home
        self._account = account
        self._fleet = fleet
        self._lines: dict[str, SshLine] = {}

    @property
    def settings(self) -> SshSettings:
        return settings_of(self._account())

    def lines(self) -> list[SshLine]:
        """Returns the line of each host that is declared now. Raises Refused without any."""
        settings = self.settings
        return [self._line_of(host, settings) for host in settings.hosts]

    def line(self, name: str) -> SshLine:
        """Returns the line of a host that is declared, or that we have a line to. Raises
        Unavailable.
        """
        settings = self.settings
        for host in settings.hosts:
            if host.name == name:
                return self._line_of(host, settings)
        if name in self._lines:
            return self._lines[name]
        raise Unavailable(
            f"host `{name}` is not listed in provider/{self._account().name} any more",
            reason="HostRemoved",
            retry_after_s=AWAY_S,
            hint="list it again with `slots: 1`, until its work has ended",
        )

    def _line_of(self, host: SshHost, settings: SshSettings) -> SshLine:
        known = self._lines.get(host.name)
        target = target_of(host, settings)
        if known is not None and known.target == target:
            known.host = host  # another interface is asked for with the next connection
            return known
        sockets = sockets_in(self._account().directory(self._home))
        interface = host.interface or ""
        hello = {"fleet": self._fleet, "lease_s": settings.lease, "interface": interface}
        line = self._lines[host.name] = SshLine(host, target, sockets=sockets, hello=hello)
        return line

    async def close(self) -> None:
        await asyncio.gather(*(line.close() for line in self._lines.values()))
        self._lines = {}
