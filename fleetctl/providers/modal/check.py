"""Whether this machine can work with Modal: the package, a token, the server, access. Called by
`fleetctl doctor`; never tells a token, starts nothing and makes nothing.
"""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.diagnostics import Finding, unreachable
from fleetctl.providers.modal.connection import credentials
from fleetctl.providers.modal.connection.client import (
    VERSIONS,
    Connection,
    import_sdk,
    installed,
    is_too_new,
    is_too_old,
)
from fleetctl.providers.modal.connection.whereabouts import Memory


async def check(home: Path, account: Account) -> list[Finding]:
    """Each line only when the one before is well: a later one could say nothing."""
    name = account.name
    try:
        credentials.check_file()
    except Refused as error:
        return [Finding(name, "token", False, str(error), error.hint)]
    try:
        version = installed()
        if known := credentials.may_be_there(account):
            await import_sdk()
    except Refused as error:
        return [Finding(name, "package", False, _package(error), error.hint)]
    beyond = f", newer than what is tested ({VERSIONS})" if is_too_new(version) else ""
    found = [Finding(name, "package", True, f"modal {version}{beyond}")]
    try:
        where = ""
        if known:
            credentials.reread()
            where = credentials.where(account)
    except Refused as error:
        return [*found, Finding(name, "token", False, str(error), error.hint)]
    if not where:
        return [*found, Finding(name, "token", False, "there is none", credentials.LOG_IN)]
    found.append(Finding(name, "token", True, f"from {where}"))
    return [*found, await _access(home, account)]


def _package(error: Refused) -> str:
    try:
        version = importlib.metadata.version("modal")
    except importlib.metadata.PackageNotFoundError:
        version = ""
    missing = not (version and is_too_old(version))
    return "`modal` is not installed" if missing else str(error)


async def _access(home: Path, account: Account) -> Finding:
    """Asks for an app that need not be there, which any working token may do."""
    server = credentials.server(account)
    memory = Memory(account.directory(home))
    connection = Connection("doctor", account=lambda: account, memory=memory)
    try:
        await connection.app_if_any()
    except Unavailable as error:
        if error.account:  # it was reached, and says no
            return Finding(account.name, "access", False, str(error), error.hint)
        return unreachable(account.name, error, f"curl -sS {server}")
    finally:
        await connection.close()
    return Finding(account.name, "access", True, f"`{server}` answers and knows the token")
