"""Finds work that no host of one's own can take, without a connection. Called by the provider."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from fleetctl.common.errors import Refused
from fleetctl.common.finding import Finding, Severity
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.base import no_network, no_pods
from fleetctl.providers.machines import machine_source
from fleetctl.providers.machines.openssh import INSTALL
from fleetctl.providers.ssh.ssh_hosts import settings_of
from fleetctl.specs.blocks.nodes import nodes_of
from fleetctl.specs.blocks.template import Template


def find_obstacles(template: Template, account: Account) -> Iterator[Finding]:
    if template.is_function:
        hint = "use a sandbox for each task, or place it on `modal` or `local`"
        yield Finding(("runtime",), "hosts of one's own have no functions", hint)
    if template.network is not None:
        yield no_network("ssh")
    if template.kubernetes is not None:
        yield no_pods("ssh")
    try:
        machine_source.check_image(template.image, "ssh")
    except Refused as error:
        yield Finding(("image",), str(error), error.hint)
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
    except Refused as error:
        yield Finding((), str(error), error.hint, Severity.LATER)
    if shutil.which("ssh") is None:
        yield Finding((), "`ssh` is not installed on this machine", INSTALL, Severity.LATER)
