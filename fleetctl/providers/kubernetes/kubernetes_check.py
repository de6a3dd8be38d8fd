"""Checks whether this machine can work with a cluster: the package, a context, the server, access;
and finds work that a cluster cannot do, without calling it.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.common.finding import Finding, Severity
from fleetctl.common.install import install_hint
from fleetctl.providers.contract.account import Account, CheckResult, explain_no_access
from fleetctl.providers.contract.base import no_network
from fleetctl.providers.kubernetes.connection.kubernetes_connection import (
    KubernetesConnection,
    of_account,
    used_namespaces,
)
from fleetctl.providers.kubernetes.connection.kubernetes_errors import cluster_call
from fleetctl.providers.kubernetes.manifests import pod_parts
from fleetctl.providers.kubernetes.manifests.gang_manifests import gang_size
from fleetctl.providers.kubernetes.manifests.pod_parts import image_of
from fleetctl.providers.paths import serves_cluster
from fleetctl.specs.blocks.kubernetes import ClusterSettings
from fleetctl.specs.blocks.template import Template

ASK_S = 5.0

EXTRA = "kubernetes"
NO_FUNCTIONS = "containers that wait for calls would hold nodes, and a cluster has no scale to zero"
FUNCTION_HINT = "use `runtime: sandbox`, with `sandbox: {reuse: 20}` for short tasks"
ENDPOINT_HINT = "use one node, or an Endpoint with `reach: Direct`"
NO_CLUSTER_HINT = "name a context in a Provider object, or export KUBECONFIG=..."


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


def find_obstacles(template: Template, account: Account) -> Iterator[Finding]:
    if importlib.util.find_spec("kubernetes") is None:
        yield Finding(
            (), "the package `kubernetes` is not installed", install_hint(EXTRA), Severity.LATER
        )
        return
    yield from of_template(template, of_account(account))
    if not account.declared and not is_there():
        message = "there is no kubeconfig, and this is no pod"
        yield Finding((), message, NO_CLUSTER_HINT, Severity.LATER)


def of_template(template: Template, settings: ClusterSettings) -> Iterator[Finding]:
    """Yields why no cluster could run a template."""
    if template.is_function:
        yield Finding(("runtime",), NO_FUNCTIONS, FUNCTION_HINT)
    if template.network is not None:
        yield no_network("kubernetes", instead="; a NetworkPolicy of the namespace restricts pods")
    if template.image is not None and template.image.snapshot is not None:
        message = f"image.snapshot is `{template.image.snapshot}`, and only `daytona` has snapshots"
        yield Finding(("image", "snapshot"), message, "name an image in `image.registry`")
    if template.endpoints and gang_size(template) > 1:
        endpoint = next(iter(template.endpoints))
        message = f"several nodes cannot ask endpoint `{endpoint}` through one run's line"
        yield Finding(("endpoints",), message, ENDPOINT_HINT)
    settings = settings.merge_under(template.kubernetes)
    try:
        pod_parts.node_selector(template.resources, settings)
    except Refused as error:
        yield Finding(("resources", "gpu"), str(error), error.hint)
    try:
        image_of(template, settings)
    except Refused as error:
        yield Finding(("image",), str(error), error.hint)


def is_there() -> bool:
    """Returns whether a cluster may be found without being named: by a kubeconfig, or around us."""
    named = [name for name in os.environ.get("KUBECONFIG", "").split(os.pathsep) if name]
    return (
        bool(named)
        or bool(os.environ.get("KUBERNETES_SERVICE_HOST"))
        or (Path.home() / ".kube" / "config").exists()
    )
