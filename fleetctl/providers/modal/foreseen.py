"""What Modal refuses, found out without its SDK and without asking it. Called by provider.py."""

from __future__ import annotations

import importlib.util

from fleetctl.common.errors import Refused
from fleetctl.common.install import install_hint
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.base import Foreseen
from fleetctl.providers.modal.connection import credentials
from fleetctl.providers.modal.connection.errors import TOKEN_HINT
from fleetctl.providers.modal.runs import clusters, machines
from fleetctl.specs.blocks.template import Template

EXTRA = "modal"


def first(template: Template, account: Account) -> Foreseen | None:
    image = template.image
    if image is not None and image.snapshot is not None:
        message = f"image.snapshot is `{image.snapshot}`, and only provider `daytona` has snapshots"
        return Foreseen(("image", "snapshot"), message, "list python, pip and apt under `image`")
    if template.endpoints and (template.is_function or clusters.size(template) > 1):
        return no_line(template.endpoints[0])
    disk = template.resources.disk
    try:
        machines.machine(template.sandbox_resources)
        for sort in template.resources.gpu.each if template.resources.gpu is not None else ():
            machines.gpu(sort)
        clusters.check(template)
    except Refused as error:
        over = disk is not None and disk > machines.DISK_BYTES_MAX
        return Foreseen(("resources", "disk" if over else "gpu"), str(error), error.hint)
    if importlib.util.find_spec("modal") is None:
        return Foreseen((), "the package `modal` is not installed", install_hint(EXTRA), later=True)
    try:
        credentials.check_file()
        there = credentials.is_there(account)
    except Refused as error:
        return Foreseen((), str(error), error.hint, later=True)
    return None if there else Foreseen((), "there is no token for Modal", TOKEN_HINT, later=True)


def no_line(endpoint: str) -> Foreseen:
    """Calls are carried over a command's input, and a function's container has none."""
    message = f"a function's containers cannot ask endpoint `{endpoint}`, nor can several nodes"
    hint = "use a sandbox for each task, one node, or an Endpoint with `reach: Direct`"
    return Foreseen(("endpoints",), message, hint)
