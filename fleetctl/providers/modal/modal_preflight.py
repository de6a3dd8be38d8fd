"""Finds work that Modal refuses, without its SDK and without calling it. Called by
modal_provider.py.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

from fleetctl.common.errors import Refused
from fleetctl.common.finding import Finding, Severity
from fleetctl.common.install import install_hint
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.base import no_pods
from fleetctl.providers.modal.connection import modal_credentials
from fleetctl.providers.modal.connection.modal_errors import TOKEN_HINT
from fleetctl.providers.modal.runs import clusters, modal_machines
from fleetctl.specs.blocks.template import Template

EXTRA = "modal"


def find_obstacles(template: Template, account: Account) -> Iterator[Finding]:
    image = template.image
    if image is not None and image.snapshot is not None:
        message = f"image.snapshot is `{image.snapshot}`, and only provider `daytona` has snapshots"
        yield Finding(("image", "snapshot"), message, "list python, pip and apt under `image`")
    if template.endpoints and (template.is_function or clusters.cluster_size(template) > 1):
        yield no_line(template.endpoints[0])
    if template.network is not None and (
        template.is_function or clusters.cluster_size(template) > 1
    ):
        message = "the network of a function's containers, and of several nodes, is not restricted"
        yield Finding(("network",), message, "use a sandbox for each task, and one node")
    if template.kubernetes is not None:
        yield no_pods("modal")
    disk = template.resources.disk
    try:
        modal_machines.choose_machine(template.sandbox_resources)
        for sort in template.resources.gpu.each if template.resources.gpu is not None else ():
            modal_machines.gpu_name(sort)
        clusters.check_cluster(template)
    except Refused as error:
        over = disk is not None and disk > modal_machines.DISK_BYTES_MAX
        yield Finding(("resources", "disk" if over else "gpu"), str(error), error.hint)
    if importlib.util.find_spec("modal") is None:
        yield Finding(
            (), "the package `modal` is not installed", install_hint(EXTRA), Severity.LATER
        )
        return
    try:
        modal_credentials.check_file()
        if not modal_credentials.is_there(account):
            yield Finding((), "there is no token for Modal", TOKEN_HINT, Severity.LATER)
    except Refused as error:
        yield Finding((), str(error), error.hint, Severity.LATER)


def no_line(endpoint: str) -> Finding:
    """Returns why an endpoint cannot be used: calls are carried over a command's input, and a
    function's container has no such command.
    """
    message = f"a function's containers cannot ask endpoint `{endpoint}`, nor can several nodes"
    hint = "use a sandbox for each task, one node, or an Endpoint with `reach: Direct`"
    return Finding(("endpoints",), message, hint)
