"""Chooses the namespace of a cluster for an object's work, and remembers the namespaces that had
work.

With custom resources each namespace has an owner of its own, and work runs where its object is.
Elsewhere the controller has a single owner, and all of it runs in one namespace. The names of used
namespaces are kept as empty files, so that objects that are left there are found again.
"""

from __future__ import annotations

from pathlib import Path

from fleetctl.providers.paths import checked_name, make_private
from fleetctl.specs.blocks.kubernetes import ClusterSettings
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE

# The namespace of all work in earlier versions of deploy/; handles of those versions name no
# namespace.
EARLIER = "fleetctl-runs"
_DIRECTORY = "namespaces-used"


def namespace_of(
    settings: ClusterSettings,
    namespace: str,
    *,
    context: str,
    tenants: bool,
) -> str:
    """Returns the cluster's namespace for the work of an object. namespace: the object's namespace;
    context: the namespace of our own credentials; tenants: objects are custom resources.
    """
    mapped = settings.namespaces.get(namespace) or settings.namespace
    return mapped or (namespace if tenants else context)


def default_namespace(
    settings: ClusterSettings,
    *,
    context: str,
    tenants: bool,
) -> str:
    """Returns the namespace of objects that name no namespace."""
    return settings.namespace or (EARLIER if tenants else context)


def namespace_in(asset: str) -> str:
    """Returns the object's namespace from a Volume's name at providers; see
    specs/values/namespaces.py.
    """
    return asset.rpartition(".")[0] or DEFAULT_NAMESPACE


def note_namespace(provider: Path, namespace: str) -> None:
    """Notes a namespace, before an object is made there. provider: the directory of its account."""
    (make_private(provider / _DIRECTORY) / checked_name(namespace)).touch(mode=0o600)


def used_namespaces(provider: Path) -> list[str]:
    place = provider / _DIRECTORY
    if place.is_dir():
        return sorted(path.name for path in place.iterdir())
    return []
