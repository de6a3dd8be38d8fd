"""The hosts of a Provider object, the line to each, the check whether they take work, and the work
that no host can take.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from fleetctl.common.errors import FleetctlError, Refused, Unavailable
from fleetctl.common.finding import Finding, Severity
from fleetctl.guest.journal.ending import size_text
from fleetctl.providers.contract.account import Account, AccountNow, CheckResult
from fleetctl.providers.contract.base import RunRequest
from fleetctl.providers.machines import machine_containers, machine_volumes
from fleetctl.providers.machines.agent_link import AWAY_S, AgentFault, AgentLine, Link
from fleetctl.providers.machines.machine_containers import NO_ENGINE, asks_container
from fleetctl.providers.machines.openssh import (
    INSTALL,
    PYTHON,
    SshTarget,
    find_ssh,
    plain_command,
    sockets_in,
)
from fleetctl.providers.machines.shell_link import SHELL, open_host_link
from fleetctl.providers.paths import make_private
from fleetctl.specs.blocks.machines import SshHost, SshSettings
from fleetctl.specs.blocks.nodes import nodes_of
from fleetctl.specs.blocks.template import Template

NO_HOSTS_HINT = (
    "declare them: kind: Provider, metadata: {name: ssh}, spec: {ssh: {hosts: [gpu1.lab]}}"
)

FREE_BYTES_MIN = 1 << 30
GUESTS = "guests.json"
NO_PYTHON = "a host without it runs `script` and `command`"


def settings_of(account: Account) -> SshSettings:
    """Returns the settings of the hosts. Raises Refused for an account without hosts."""
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
        python=host.python or PYTHON,
        directory=host.directory,
    )


class SshLine(AgentLine):
    """The line to one host."""

    def __init__(
        self,
        host: SshHost,
        target: SshTarget,
        *,
        directory: Path,
        hello: Mapping[str, object],
    ) -> None:
        """directory: of the provider's records."""
        super().__init__(host.name, self._open_link)
        self.host = host
        self.target = target
        self._directory = directory
        self._hello = hello

    async def _open_link(self) -> Link:
        sockets = sockets_in(self._directory)
        link = await open_host_link(self.target, sockets=sockets, hello=self._hello)
        note_guest(self._directory, self.name, str(link.facts.get("guest", "python")))
        return link

    def lacks(self, request: RunRequest) -> str:
        """Returns why this host cannot take a run, as far as its guest decides; "" if it can."""
        field = machine_volumes.find_python_field(request.template)
        field = field or ("checkpoint" if request.training() else "")
        if self.facts.get("guest") != SHELL or not field:
            return ""
        return f"it has no Python 3.9 or later, which `{field}` needs"


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

    def opened(self) -> dict[str, SshLine]:
        """Returns the lines so far, by host; those of hosts that are declared no more, too."""
        return dict(self._lines)

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
        directory = self._account().directory(self._home)
        interface = host.interface or ""
        hello = {"fleet": self._fleet, "lease_s": settings.lease, "interface": interface}
        hello["engine"] = list(settings.container.command)
        line = self._lines[host.name] = SshLine(host, target, directory=directory, hello=hello)
        return line

    async def close(self) -> None:
        await asyncio.gather(*(line.close() for line in self._lines.values()))
        self._lines = {}


async def check_ssh(home: Path, account: Account) -> list[CheckResult]:
    """Returns a finding for each host; none for the built-in name without hosts."""
    if not account.settings:
        return []
    name = account.name
    try:
        find_ssh()
    except Refused as error:
        return [CheckResult(name, "program", False, str(error), error.hint)]
    hosts = SshHosts(home, lambda: account)
    try:
        found = await asyncio.gather(*(_check_host(name, line) for line in hosts.lines()))
    finally:
        await hosts.close()
    return [one for findings in found for one in findings]


async def _check_host(name: str, line: SshLine) -> list[CheckResult]:
    try:
        await line.link()
        boxes = (await line.call("list"))["boxes"]
    except (FleetctlError, AgentFault) as error:
        away = isinstance(error, Unavailable) and not error.account
        hint = getattr(error, "hint", "")
        return [CheckResult(name, "host", False, str(error), hint, away=away)]
    facts = line.facts
    slots = line.host.slots or facts["cpu"]
    gpus = ", ".join(facts["gpus"]) or "no GPU"
    guest = "guest: shell (no Python 3.9 or later)"
    if facts.get("guest") != SHELL:
        guest = f"Python {facts['python']}, {facts['installer']}"
    text = (
        f"`{line.name}`: {facts['cpu']} cores, {size_text(facts['memory'])}, {gpus};"
        f" {len(boxes)} of {slots} slots taken; {guest};"
        f" containers by {facts.get('containers', NO_ENGINE)}"
    )
    found = [CheckResult(name, "host", True, text)]
    reach = plain_command(line.target)
    if facts["free"] < FREE_BYTES_MIN:
        free = size_text(facts["free"])
        text = f"`{line.name}` has {free} free where its work is kept, `{facts['root']}`"
        found.append(CheckResult(name, "disk", False, text, f"{reach} du -sh {facts['root']}"))
    if facts["ends_with_login"]:
        text = f"`{line.name}` kills all processes of a user at the end of the last login"
        found.append(CheckResult(name, "logind", False, text, f"{reach} loginctl enable-linger"))
    return found


def note_guest(directory: Path, host: str, guest: str) -> None:
    """Notes which guest a host has, for checks before anything is stored."""
    known = read_guests(directory)
    if known.get(host) != guest:
        making = make_private(directory) / f"{GUESTS}.{os.getpid()}"
        making.write_text(json.dumps({**known, host: guest}), encoding="utf-8")
        making.replace(directory / GUESTS)


def read_guests(directory: Path) -> dict[str, str]:
    """Returns the guest of each host, by name, as last seen."""
    try:
        found: dict[str, str] = json.loads((directory / GUESTS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found


NO_FUNCTIONS = "hosts of one's own have no functions"


def _lacks_engine(line: SshLine | None) -> bool:
    """Returns whether a host was asked, and has none."""
    return line is not None and line.facts.get("containers") == NO_ENGINE


def find_obstacles(
    template: Template,
    account: Account,
    home: Path,
    lines: Mapping[str, SshLine],
) -> Iterator[Finding]:
    """Finds work that no host can take. lines: those that were opened before, by host, whose facts
    count.
    """
    yield from machine_volumes.find_obstacles(template, "ssh", NO_FUNCTIONS)
    nodes = nodes_of(template)
    if template.endpoints and nodes.max > 1:
        endpoint = next(iter(template.endpoints))
        message = f"several nodes cannot ask endpoint `{endpoint}` through one run's line"
        yield Finding(("endpoints",), message, "use `nodes: 1`, or `reach: Direct` in the Endpoint")
    try:
        hosts = settings_of(account).hosts
        if nodes.min > len(hosts):
            message = f"`nodes` is {nodes}, and provider `{account.name}` has {len(hosts)}"
            hint = "list more hosts in the Provider object, or use fewer nodes"
            yield Finding(("nodes",), f"{message} host{'s' * (len(hosts) > 1)}", hint)
        without = [lines[it.name] for it in hosts if _lacks_engine(lines.get(it.name))]
        if asks_container(template) and len(without) == len(hosts):
            message = f"no host of provider `{account.name}` has podman or docker"
            hint = f"{plain_command(without[0].target)} {machine_containers.INSTALL}"
            yield Finding(("image", "registry"), message, hint)
        field = machine_volumes.find_python_field(template)
        guests = read_guests(account.directory(home))
        if field and all(guests.get(it.name) == SHELL for it in hosts):
            message = f"needs Python 3.9 or later, and no host of `{account.name}` has it"
            hint = f"install it on one of them, then run `fleetctl doctor`; {NO_PYTHON}"
            yield Finding((field,), f"`{field}` {message}", hint)
    except Refused as error:
        yield Finding((), str(error), error.hint, Severity.LATER)
    if shutil.which("ssh") is None:
        yield Finding((), "`ssh` is not installed on this machine", INSTALL, Severity.LATER)
