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
    try:
        settings_of(account)
    except Refused as error:
        yield Finding((), str(error), error.hint, Severity.LATER)
    if shutil.which("ssh") is None:
        yield Finding((), "`ssh` is not installed on this machine", INSTALL, Severity.LATER)
