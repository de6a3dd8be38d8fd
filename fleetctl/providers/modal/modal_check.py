"""Checks whether this machine can work with Modal: the package, a token, the server, access. Called
by `fleetctl doctor`; never shows a token, and makes and starts no object.
"""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.diagnostics import CheckResult, explain_no_access
from fleetctl.providers.modal.connection import modal_credentials
from fleetctl.providers.modal.connection.modal_connection import (
    VERSIONS,
    ModalConnection,
    import_sdk,
    installed_version,
    is_too_new,
    is_too_old,
)
from fleetctl.providers.modal.connection.workspace import WorkspaceMemory


async def check_modal(home: Path, account: Account) -> list[CheckResult]:
    """Returns the results of the checks in order, up to the first that fails: later ones would
    prove little.
    """
    try:
        modal_credentials.check_file()
    except Refused as error:
        return [_failed(account, "token", str(error), error.hint)]

    try:
        version = installed_version()
        may_have_token = modal_credentials.may_be_there(account)
        if may_have_token:
            await import_sdk()
    except Refused as error:
        return [_failed(account, "package", _check_package(error), error.hint)]
    untested = f", newer than what is tested ({VERSIONS})" if is_too_new(version) else ""
    package = CheckResult(account.name, "package", True, f"modal {version}{untested}")

    try:
        source = ""
        if may_have_token:
            modal_credentials.reread_profile()
            source = modal_credentials.token_location(account)
    except Refused as error:
        return [package, _failed(account, "token", str(error), error.hint)]
    if not source:
        return [package, _failed(account, "token", "there is none", modal_credentials.LOG_IN)]
    token = CheckResult(account.name, "token", True, f"from {source}")
    return [package, token, await _check_access(home, account)]


def _failed(
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
