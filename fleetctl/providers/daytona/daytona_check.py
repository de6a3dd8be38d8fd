"""Checks whether this machine can work with Daytona: the package, a key, the server, access. Called
by `fleetctl doctor`; never shows a key, and makes and starts no object.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.common.install import install_hint
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.diagnostics import CheckResult, explain_no_access
from fleetctl.providers.daytona.connection import daytona_credentials, sdk
from fleetctl.providers.daytona.connection.daytona_connection import DaytonaConnection
from fleetctl.providers.daytona.connection.daytona_credentials import server_url

EXTRA = "daytona"
EXPORT = "set -a; . ./.env; set +a"


async def check_daytona(home: Path, account: Account) -> list[CheckResult]:
    """Returns the checks in order; each only when the one before is well: a later one could prove
    little.
    """
    del home
    name = account.name
    if not sdk.installed_version():
        return [_sdk_unusable(name, "is not installed")]
    found = [CheckResult(name, "package", True, f"daytona {sdk.installed_version()}")]
    try:
        known = daytona_credentials.of_account(account)
    except Unavailable as error:
        message = str(error) if account.declared else "there is none"
        return [
            *found,
            CheckResult(name, "key", False, message, error.hint),
        ]
    # A second, for who has a key to use it with.
    if problem := await asyncio.to_thread(sdk.find_problem):
        return [_sdk_unusable(name, problem)]
    if ".env" in known.source and not account.declared:
        # Commands in this directory find it; a controller works in another directory, for all
        # users.
        message = f"only in {known.source}, which the controller does not read"
        return [
            *found,
            CheckResult(name, "key", False, message, EXPORT),
            await _check_access(account),
        ]
    found.append(CheckResult(name, "key", True, f"from {known.source}"))
    return [*found, await _check_access(account)]


def _sdk_unusable(name: str, problem: str) -> CheckResult:
    return CheckResult(name, "package", False, f"`daytona` {problem}", install_hint(EXTRA))


async def _check_access(account: Account) -> CheckResult:
    """Asks for what any working key may see."""
    connection = DaytonaConnection(account=lambda: account)
    try:
        await connection.client()
    except (Refused, Unavailable) as error:
        return explain_no_access(account.name, error, f"curl -sS {server_url(account)}")
    finally:
        await connection.close()
    return CheckResult(
        account.name, "access", True, f"`{server_url(account)}` answers and knows the key"
    )
