"""Finds work that no host of one's own can take, without a connection. Called by the provider."""

from __future__ import annotations

import shutil

from fleetctl.common.errors import Refused
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.base import Foreseen, no_network, no_pods
from fleetctl.providers.machines import machine_source
from fleetctl.providers.machines.openssh import INSTALL
from fleetctl.providers.ssh.ssh_hosts import settings_of
from fleetctl.specs.blocks.template import Template


def find_obstacle(template: Template, account: Account) -> Foreseen | None:
    if template.is_function:
        hint = "use a sandbox for each task, or place it on `modal` or `local`"
        return Foreseen(("runtime",), "hosts of one's own have no functions", hint)
    if template.network is not None:
        return no_network("ssh")
    if template.kubernetes is not None:
        return no_pods("ssh")
    try:
        machine_source.check_image(template.image, "ssh")
    except Refused as error:
        return Foreseen(("image",), str(error), error.hint)
    try:
        settings_of(account)
    except Refused as error:
        return Foreseen((), str(error), error.hint, later=True)
    if shutil.which("ssh") is None:
        return Foreseen((), "`ssh` is not installed on this machine", INSTALL, later=True)
    return None
