"""Checks whether the hosts of a Provider object take work: the client, access, Python, GPUs, disk.
Called by `fleetctl doctor`; makes and starts no object.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from fleetctl.common.errors import FleetctlError, Refused, Unavailable
from fleetctl.guest.journal.ending import size_text
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.diagnostics import CheckResult
from fleetctl.providers.machines.agent_link import AgentFault
from fleetctl.providers.machines.openssh import find_ssh, plain_command
from fleetctl.providers.ssh.ssh_hosts import SshHosts, SshLine

FREE_BYTES_MIN = 1 << 30


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
    text = (
        f"`{line.name}`: {facts['cpu']} cores, {size_text(facts['memory'])}, {gpus};"
        f" {len(boxes)} of {slots} slots taken; Python {facts['python']}, {facts['installer']}"
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
