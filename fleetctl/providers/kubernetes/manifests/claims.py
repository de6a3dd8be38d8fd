"""The PersistentVolumeClaim of one Volume, as a plain dict. Pure."""

from __future__ import annotations

import re
from hashlib import blake2b

from fleetctl.kubernetes.connection import Object
from fleetctl.providers.kubernetes.manifests.labels import MANAGED, PREFIX
from fleetctl.specs.blocks.kubernetes import ClusterVolumes

VOLUME_MARK = f"{PREFIX}volume"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def claim_name(volume: str) -> str:
    """A Volume's own name is a claim's; of another namespace of ours it has a dot in it."""
    if _NAME.fullmatch(volume):
        return volume
    return "volume-" + blake2b(volume.encode(), digest_size=10).hexdigest()


def build_claim(
    name: str,
    volume: str,
    settings: ClusterVolumes,
) -> Object:
    """name: of the claim for that Volume."""
    spec: Object = {
        "accessModes": [settings.access_mode],
        "resources": {"requests": {"storage": str(settings.size)}},
    }
    if settings.storage_class is not None:
        spec["storageClassName"] = settings.storage_class
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name,
            "labels": dict(MANAGED),
            "annotations": {VOLUME_MARK: volume},
        },
        "spec": spec,
    }


def is_ours(found: Object) -> bool:
    """Returns whether we made it: other claims are used, and never deleted."""
    return VOLUME_MARK in ((found.get("metadata") or {}).get("annotations") or {})
