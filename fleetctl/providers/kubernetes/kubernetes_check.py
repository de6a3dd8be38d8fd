"""Checks whether this machine can work with a cluster: the package, a context, the server, access.
Called by `fleetctl doctor`; never shows a token, and makes and starts no object.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from pathlib import Path

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.common.install import install_hint
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.diagnostics import CheckResult, explain_no_access
from fleetctl.providers.kubernetes.connection.kubernetes_connection import KubernetesConnection
from fleetctl.providers.kubernetes.connection.kubernetes_errors import cluster_call
from fleetctl.providers.kubernetes.connection.namespaces import used_namespaces
from fleetctl.providers.kubernetes.kubernetes_preflight import EXTRA, NO_CLUSTER_HINT, is_there
from fleetctl.providers.paths import serves_cluster

ASK_S = 5.0


async def check_kubernetes(home: Path, account: Account) -> list[CheckResult]:
    """Returns the checks in order; each only when the one before is well: a later one could prove
    little.
    """
    name = account.name
    if importlib.util.find_spec("kubernetes") is None:
        return [
            CheckResult(
                name, "package", False, "`kubernetes` is not installed", install_hint(EXTRA)
            )
        ]
    version = importlib.metadata.version("kubernetes")
    found = [CheckResult(name, "package", True, f"kubernetes {version}")]
    if not account.declared and not is_there():
        return [
            *found,
            CheckResult(name, "cluster", False, "there is none", NO_CLUSTER_HINT),
        ]
    return [*found, await _check_access(home, account)]


async def _check_access(home: Path, account: Account) -> CheckResult:
    """Checks access with requests that every token with the right to start Jobs may send."""
    tenants = serves_cluster(home)
    connection = KubernetesConnection(account=lambda: account, tenants=tenants)
    try:
        known = used_namespaces(account.directory(home)) if tenants else []
        link = await connection.link(known[-1] if known else "")
        where = f"namespace `{link.namespace}`"
        async with cluster_call(f"the jobs of {where}", deadline_s=ASK_S):
            await link.api.request("GET", link.path("jobs"), query={"limit": 1}, tries=1)
    except (Refused, Unavailable) as error:
        return explain_no_access(account.name, error, "kubectl cluster-info")
    finally:
        await connection.close()
    return CheckResult(account.name, "access", True, f"{where} answers, and lets us list its Jobs")
