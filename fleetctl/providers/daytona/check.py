"""Whether this machine can work with Daytona: the package, a key, the server, access. Called by
`fleetctl doctor`; never tells a key, starts nothing and makes nothing.
"""

from __future__ import annotations

import importlib.metadata
import os
from pathlib import Path

from fleetctl.errors import Refused, Unavailable
from fleetctl.providers.account import Account
from fleetctl.providers.daytona.client import Connection, import_sdk, url
from fleetctl.providers.daytona.errors import KEY_HINT
from fleetctl.providers.findings import Finding, unreachable

INSTALL = "pip install 'fleetctl[daytona]'"
VARIABLES = ("DAYTONA_API_KEY", "DAYTONA_JWT_TOKEN")


async def check(home: Path, account: Account) -> list[Finding]:
    """Each line only when the one before is well: a later one could say nothing."""
    del home
    name = account.name
    try:
        await import_sdk()
    except Refused:
        return [Finding(name, "package", False, "`daytona` is not installed", INSTALL)]
    version = importlib.metadata.version("daytona")
    found = [Finding(name, "package", True, f"daytona {version}")]
    try:
        where = _key(account)
    except Refused as error:
        return [*found, Finding(name, "key", False, str(error), error.hint)]
    if not where:
        return [*found, Finding(name, "key", False, "there is none", KEY_HINT)]
    found.append(Finding(name, "key", True, f"from {where}"))
    return [*found, await _access(account)]


def _key(account: Account) -> str:
    """Where the SDK has its key from; "" when it has none. Raises Refused where the account says
    where it is, and there is none.
    """
    if account.said:
        account.value("apiKeyEnv")
        return account.where()
    from daytona._utils.env import DaytonaEnvReader

    for name in VARIABLES:
        if os.environ.get(name):
            return f"the environment, `{name}`"
    reader = DaytonaEnvReader()
    if any(reader.get(name) for name in VARIABLES):
        return f"a file `.env` in `{Path.cwd()}`"
    return ""


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
