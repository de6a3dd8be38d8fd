"""Makes the parts of a pod that the `kubernetes` blocks describe, and lists what of its namespace a
pod names. Pure; called by jobs.py and by runs/job_creator.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fleetctl.kubernetes.connection import Object
from fleetctl.providers.kubernetes.manifests.labels import MANAGED, PREFIX
from fleetctl.specs.blocks.kubernetes import ClusterSettings, KeptHere
from fleetctl.specs.values.pod_shape import TEMPLATE, patch_shape

# Fields of a pod that name an object of its namespace, by its sort; wherever they are.
_NAMED = {
    "secretRef": ("secrets", "name"),
    "secretKeyRef": ("secrets", "name"),
    "nodePublishSecretRef": ("secrets", "name"),
    "azureFile": ("secrets", "secretName"),
    "configMapRef": ("configmaps", "name"),
    "configMapKeyRef": ("configmaps", "name"),
    "configMap": ("configmaps", "name"),
    "persistentVolumeClaim": ("persistentvolumeclaims", "claimName"),
}


def pod_fields(settings: ClusterSettings, uid: str) -> Object:
    """Returns fields of the pod's spec. uid: of the object whose pods a spread counts."""
    own = {"matchLabels": {f"{PREFIX}uid": uid}}
    return {
        "affinity": dict(settings.affinity),
        "topologySpreadConstraints": [
            it if "labelSelector" in it else {**it, "labelSelector": own}
            for it in settings.topology_spread
        ],
        "resourceClaims": list(settings.resource_claims),
        "initContainers": list(settings.init_containers),
    }


def kept_variables(settings: ClusterSettings) -> list[Object]:
    """Returns `envFrom` of the work's container."""
    return [
        {
            **({"prefix": it.prefix} if it.prefix is not None else {}),
            field: {"name": it.name, **_optional_mark(it)},
        }
        for field, listed in (
            ("configMapRef", settings.config_maps),
            ("secretRef", settings.secrets),
        )
        for it in listed
        if it.mount_path is None
    ]


def kept_mounts(settings: ClusterSettings) -> list[Object]:
    return [
        {"name": name, "mountPath": it.mount_path, "readOnly": True}
        for name, _, it in _file_volumes(settings)
    ]


def kept_volumes(settings: ClusterSettings) -> list[Object]:
    found = []
    for name, field, it in _file_volumes(settings):
        called = "name" if field == "configMap" else "secretName"
        found.append({"name": name, field: {called: it.name, **_optional_mark(it)}})
    return found


def _file_volumes(settings: ClusterSettings) -> Iterator[tuple[str, str, KeptHere]]:
    """Returns (the volume's name, its field, the field's content) of volumes of files."""
    for field, listed in (("configMap", settings.config_maps), ("secret", settings.secrets)):
        for number, it in enumerate(listed):
            if it.mount_path is not None:
                yield f"{field.lower()}-{number}", field, it


def _optional_mark(kept: KeptHere) -> Object:
    if kept.optional:
        return {"optional": True}
    return {}


def reshape_template(template: Object, settings: ClusterSettings) -> Object:
    """Returns a pod's template with the patch of `podTemplate`, which cannot change our labels."""
    if not settings.pod_template:
        return template
    made: Object = patch_shape(template, settings.pod_template, TEMPLATE)
    labels = made["metadata"].setdefault("labels", {})
    ours = {key: it for key, it in template["metadata"]["labels"].items() if _is_ours(key)}
    made["metadata"]["labels"] = {**labels, **ours}
    return made


def _is_ours(label: str) -> bool:
    return label.startswith(PREFIX) or label in MANAGED


def named_in(pod: Object) -> set[tuple[str, str]]:
    """Returns (plural, name) of all in its namespace that a pod's spec makes use of."""
    found = set(_inner_fields(pod))
    for it in pod.get("imagePullSecrets") or ():
        found.add(("secrets", str(it.get("name"))))
    # Kubernetes still reads the field's former name where the present one is empty.
    if account := pod.get("serviceAccountName") or pod.get("serviceAccount"):
        found.add(("serviceaccounts", str(account)))
    return found


def _inner_fields(value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, list):
        for one in value:
            yield from _inner_fields(one)
    elif isinstance(value, Mapping):
        for key, one in value.items():
            if isinstance(one, Mapping) and key in _NAMED:
                plural, field = _NAMED[key]
                if name := one.get(field):
                    yield plural, str(name)
            # In a volume it is `secretName`, in a projected one `name`.
            if key == "secret" and isinstance(one, Mapping):
                yield "secrets", str(one.get("secretName") or one.get("name"))
            yield from _inner_fields(one)
