"""Whether this machine can work with Modal: the package, a token, the server, access. Called by
`fleetctl doctor`; never tells a token, starts nothing and makes nothing.
"""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

from fleetctl.errors import FleetctlError, Refused
from fleetctl.providers.findings import Finding
from fleetctl.providers.modal import credentials
from fleetctl.providers.modal.client import Connection, import_sdk

INSTALL = "pip install 'fleetctl[modal]'"


async def check(home: Path) -> list[Finding]:
    """Each line only when the one before is well: a later one could say nothing."""
    del home
    try:
        credentials.check_file()
    except Refused as error:
        return [Finding("modal", "token", False, str(error), error.hint)]
    try:
        await import_sdk()
    except Refused:
        return [Finding("modal", "package", False, "`modal` is not installed", INSTALL)]
    version = importlib.metadata.version("modal")
    found = [Finding("modal", "package", True, f"modal {version}")]
    where = credentials.where()
    if not where:
        return [*found, Finding("modal", "token", False, "there is none", credentials.LOG_IN)]
    found.append(Finding("modal", "token", True, f"from {where}"))
    return [*found, await _access()]


async def _access() -> Finding:
    """Asks for an app that need not be there, which any working token may do."""
    from modal.config import config

    server = str(config["server_url"]).partition(",")[0]  # the others are for when it is away
    connection = Connection("doctor")
    try:
        await connection.app_if_any()
    except FleetctlError as error:
        fix = error.hint if isinstance(error, Refused) else f"curl -sS {server}"
        return Finding("modal", "access", False, str(error), fix)
    finally:
        await connection.close()
    return Finding("modal", "access", True, f"`{server}` answers and knows the token")
