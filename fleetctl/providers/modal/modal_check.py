"""Checks whether this machine can work with Modal: the package, a token, the server, access; and
finds work that Modal refuses, without calling it.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Iterator
from pathlib import Path

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.common.finding import Finding, Severity
from fleetctl.common.install import install_hint
from fleetctl.providers.contract.account import Account, CheckResult, explain_no_access
from fleetctl.providers.contract.base import no_pods
from fleetctl.providers.modal.connection import modal_credentials
from fleetctl.providers.modal.connection.modal_connection import (
    VERSIONS,
    ModalConnection,
    WorkspaceMemory,
    import_sdk,
    installed_version,
    is_too_new,
    is_too_old,
)
from fleetctl.providers.modal.connection.modal_errors import TOKEN_HINT
from fleetctl.providers.modal.runs import modal_machines
from fleetctl.specs.blocks.template import Template

EXTRA = "modal"


async def check_modal(home: Path, account: Account) -> list[CheckResult]:
    """Returns the results of the checks in order, up to the first that fails: later ones would
    prove little.
    """
    try:
        modal_credentials.check_file()
    except Refused as error:
        return [_report_failure(account, "token", str(error), error.hint)]

    try:
        version = installed_version()
        may_have_token = modal_credentials.may_be_there(account)
        if may_have_token:
            await import_sdk()
    except Refused as error:
        return [_report_failure(account, "package", _check_package(error), error.hint)]
    untested = f", newer than what is tested ({VERSIONS})" if is_too_new(version) else ""
    package = CheckResult(account.name, "package", True, f"modal {version}{untested}")

    try:
        source = ""
        if may_have_token:
            modal_credentials.reread_profile()
            source = modal_credentials.token_location(account)
    except Refused as error:
        return [package, _report_failure(account, "token", str(error), error.hint)]
    if not source:
        return [
            package,
            _report_failure(account, "token", "there is none", modal_credentials.LOG_IN),
        ]
    token = CheckResult(account.name, "token", True, f"from {source}")
    return [package, token, await _check_access(home, account)]


def _report_failure(
    account: Account,
    check: str,
    message: str,
    hint: str,
) -> CheckResult:
    return CheckResult(account.name, check, False, message, hint)


def _check_package(error: Refused) -> str:
    try:
        version = importlib.metadata.version("modal")
    except importlib.metadata.PackageNotFoundError:
        version = ""
    missing = not (version and is_too_old(version))
    if missing:
        return "`modal` is not installed"
    return str(error)


async def _check_access(home: Path, account: Account) -> CheckResult:
    """Asks for an app that need not be there, which any working token may do."""
    server = modal_credentials.server_url(account)
    memory = WorkspaceMemory(account.directory(home))
    connection = ModalConnection("doctor", account=lambda: account, memory=memory)
    try:
        await connection.app_if_any()
    except Unavailable as error:
        return explain_no_access(account.name, error, f"curl -sS {server}")
    finally:
        await connection.close()
    return CheckResult(account.name, "access", True, f"`{server}` answers and knows the token")


def find_obstacles(template: Template, account: Account) -> Iterator[Finding]:
    image = template.image
    if image is not None and image.snapshot is not None:
        message = f"image.snapshot is `{image.snapshot}`, and only provider `daytona` has snapshots"
        yield Finding(("image", "snapshot"), message, "list python, pip and apt under `image`")
    if template.endpoints and (template.is_function or modal_machines.cluster_size(template) > 1):
        yield refuse_endpoint(template.endpoints[0])
    if template.network is not None and (
        template.is_function or modal_machines.cluster_size(template) > 1
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
        modal_machines.check_cluster(template)
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


def refuse_endpoint(endpoint: str) -> Finding:
    """Returns why an endpoint cannot be used: calls are carried over a command's input, and a
    function's container has no such command.
    """
    message = f"a function's containers cannot ask endpoint `{endpoint}`, nor can several nodes"
    hint = "use a sandbox for each task, one node, or an Endpoint with `reach: Direct`"
    return Finding(("endpoints",), message, hint)
