"""Finds work that a cluster cannot do, without the cluster's package and without calling it. Called
by kubernetes_provider.py.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

from fleetctl.common.errors import Refused
from fleetctl.common.finding import Finding, Severity
from fleetctl.common.install import install_hint
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.base import no_network
from fleetctl.providers.kubernetes.connection.kubernetes_settings import of_account
from fleetctl.providers.kubernetes.manifests import pod_resources
from fleetctl.providers.kubernetes.manifests.gang_manifests import gang_size
from fleetctl.providers.kubernetes.manifests.pod_images import image_of
from fleetctl.specs.blocks.kubernetes import ClusterSettings
from fleetctl.specs.blocks.template import Template

EXTRA = "kubernetes"
NO_FUNCTIONS = "containers that wait for calls would hold nodes, and a cluster has no scale to zero"
FUNCTION_HINT = "use `runtime: sandbox`, with `sandbox: {reuse: 20}` for short tasks"
ENDPOINT_HINT = "use one node, or an Endpoint with `reach: Direct`"
NO_CLUSTER_HINT = "name a context in a Provider object, or export KUBECONFIG=..."


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
    settings = settings.shaped(template.kubernetes)
    try:
        pod_resources.node_selector(template.resources, settings)
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
