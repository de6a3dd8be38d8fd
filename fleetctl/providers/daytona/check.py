"""Whether this machine can work with Daytona: the package, a key, the server, access. Called by
`fleetctl doctor`; never tells a key, starts nothing and makes nothing.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from pathlib import Path

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.common.install import install_hint
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.diagnostics import Finding, unreachable
from fleetctl.providers.daytona.connection import credentials
from fleetctl.providers.daytona.connection.client import Connection, import_sdk
from fleetctl.providers.daytona.connection.credentials import url

EXTRA = "daytona"
EXPORT = "set -a; . ./.env; set +a"


async def check(home: Path, account: Account) -> list[Finding]:
    """Each line only when the one before is well: a later one could say nothing."""
    del home
    name = account.name
    missing = Finding(name, "package", False, "`daytona` is not installed", install_hint(EXTRA))
    if importlib.util.find_spec("daytona") is None:
        return [missing]
    version = importlib.metadata.version("daytona")
    found = [Finding(name, "package", True, f"daytona {version}")]
    try:
        known = credentials.of_account(account)
    except Unavailable as error:
        message = str(error) if account.declared else "there is none"
        return [*found, Finding(name, "key", False, message, error.hint)]
    try:
        await import_sdk()  # a second, for who has a key to use it with
    except Refused:
        return [missing]
    if ".env" in known.source and not account.declared:
        # Commands of this directory find it; a controller works in another one, for all of them.
        message = f"only in {known.source}, which the controller does not read"
        return [*found, Finding(name, "key", False, message, EXPORT), await _access(account)]
    found.append(Finding(name, "key", True, f"from {known.source}"))
    return [*found, await _access(account)]


async def _access(account: Account) -> Finding:
    """Asks for what any working key may see."""
    connection = Connection(account=lambda: account)
    try:
        await connection.client()
    except Refused as error:
        return Finding(account.name, "access", False, str(error), error.hint)
    except Unavailable as error:
        if error.account:  # it answers, and not as one would wish
            return Finding(account.name, "access", False, str(error), error.hint)
        return unreachable(account.name, error, f"curl -sS {url(account)}")
    finally:
        await connection.close()
    return Finding(account.name, "access", True, f"`{url(account)}` answers and knows the key")
