"""Whether this machine can work with Daytona: the package, a key, the server, access. Called by
`fleetctl doctor`; never tells a key, starts nothing and makes nothing.
"""

from __future__ import annotations

import importlib.metadata
import os
from pathlib import Path

from fleetctl.errors import FleetctlError, Refused
from fleetctl.providers.daytona.client import Connection, import_sdk, url
from fleetctl.providers.daytona.errors import KEY_HINT
from fleetctl.providers.findings import Finding

INSTALL = "pip install 'fleetctl[daytona]'"
VARIABLES = ("DAYTONA_API_KEY", "DAYTONA_JWT_TOKEN")


async def check(home: Path) -> list[Finding]:
    """Each line only when the one before is well: a later one could say nothing."""
    del home
    try:
        await import_sdk()
    except Refused:
        return [Finding("daytona", "package", False, "`daytona` is not installed", INSTALL)]
    version = importlib.metadata.version("daytona")
    found = [Finding("daytona", "package", True, f"daytona {version}")]
    where = _key()
    if not where:
        return [*found, Finding("daytona", "key", False, "there is none", KEY_HINT)]
    found.append(Finding("daytona", "key", True, f"from {where}"))
    return [*found, await _access()]


def _key() -> str:
    """Where the SDK has its key from; "" when it has none."""
    from daytona._utils.env import DaytonaEnvReader

    for name in VARIABLES:
        if os.environ.get(name):
            return f"the environment, `{name}`"
    reader = DaytonaEnvReader()
    if any(reader.get(name) for name in VARIABLES):
        return f"a file `.env` in `{Path.cwd()}`"
    return ""


async def _access() -> Finding:
    """Asks for what any working key may see."""
    connection = Connection()
    try:
        await connection.client()
    except FleetctlError as error:
        return Finding("daytona", "access", False, str(error), error.hint or f"curl -sS {url()}")
    finally:
        await connection.close()
    return Finding("daytona", "access", True, f"`{url()}` answers and knows the key")
