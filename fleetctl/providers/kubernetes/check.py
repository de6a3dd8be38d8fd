"""Whether this machine can work with a cluster: the package, a context, the server, access. Called
by `fleetctl doctor`; never tells a token, starts nothing and makes nothing.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from pathlib import Path

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.common.install import install_hint
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.diagnostics import Finding, unreachable
from fleetctl.providers.kubernetes.connection.client import Connection
from fleetctl.providers.kubernetes.connection.errors import asking
from fleetctl.providers.kubernetes.foreseen import EXTRA, NO_CLUSTER_HINT, is_there

ASK_S = 5.0


async def check(home: Path, account: Account) -> list[Finding]:
    """Each line only when the one before is well: a later one could say nothing."""
    del home
    name = account.name
    if importlib.util.find_spec("kubernetes") is None:
        return [
            Finding(name, "package", False, "`kubernetes` is not installed", install_hint(EXTRA))
        ]
    version = importlib.metadata.version("kubernetes")
    found = [Finding(name, "package", True, f"kubernetes {version}")]
    if not account.declared and not is_there():
        return [*found, Finding(name, "cluster", False, "there is none", NO_CLUSTER_HINT)]
    return [*found, await _access(account)]


async def _access(account: Account) -> Finding:
    """Asks for what any token that may start Jobs may see."""
    connection = Connection(account=lambda: account)
    try:
        link = await connection.link()
        where = f"namespace `{link.namespace}`"
        async with asking(f"the jobs of {where}", deadline_s=ASK_S):
            await link.api.request("GET", link.path("jobs"), query={"limit": 1}, tries=1)
    except Refused as error:
        return Finding(account.name, "access", False, str(error), error.hint)
    except Unavailable as error:
        if error.account:
            return Finding(account.name, "access", False, str(error), error.hint)
        return unreachable(account.name, error, "kubectl cluster-info")
    finally:
        await connection.close()
    return Finding(account.name, "access", True, f"{where} answers, and lets us list its Jobs")
