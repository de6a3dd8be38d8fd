"""Marks our objects in a cluster, labels to select by and annotations for all else, and builds the
claim of a Volume with them. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import blake2b

from fleetctl.kubernetes.connection import Object
from fleetctl.providers.contract.base import RunRequest
from fleetctl.providers.remote.sandboxes import sandbox_names
from fleetctl.specs.blocks.kubernetes import ClusterVolumes
from fleetctl.specs.values.namespaces import split_key

PREFIX = "fleetctl.dev/"
MANAGED = {"app.kubernetes.io/managed-by": "fleetctl"}
# A label's value is short and plain; the others may be neither.
_LABELS = ("fleet", "run", "uid", "kind", "name", "namespace", "index")
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_KEY = re.compile(r"([a-z0-9][-a-z0-9.]{0,252}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
# Labels by which a tool decides how to treat an object. On our Jobs they would make Argo CD or Flux
# prune them, and Kueue or the Job controller take them over.
_NOT_PASSED = ("app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "job-name")
_NOT_PASSED_OF = (
    *("argocd.argoproj.io", "fluxcd.io", "applyset.kubernetes.io", "kueue.x-k8s.io"),
    *("batch.kubernetes.io", "pod-security.kubernetes.io", "fleetctl.dev"),
)
NAME_CHARS_MAX = 52  # of a Job: its pods and their host names have 11 more
_HASH_CHARS = 6
JOB_NAME = "batch.kubernetes.io/job-name"
JOB_INDEX = "batch.kubernetes.io/job-completion-index"

VOLUME_MARK = f"{PREFIX}volume"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def job_name(request: RunRequest) -> str:
    """Returns a DNS label such as `batchjob-chunks-3-1-5f2ac1`: kind and name, index and attempt,
    and a hash that differs in another store, or for an object that had the name before.
    """
    kind, name, _ = split_key(request.resource)
    which = blake2b(request.run.encode(), digest_size=8).hexdigest()[:_HASH_CHARS]
    rest = f"-{request.index}-{request.attempt}-{which}"
    whole = f"{kind}-{name}" if name else kind
    return whole[: NAME_CHARS_MAX - len(rest)].rstrip("-") + rest


def passed_on(labels: Mapping[str, str]) -> dict[str, str]:
    """Returns the labels of an object that its Jobs and pods have too."""
    return {
        key: text
        for key, text in labels.items()
        if _KEY.fullmatch(key) and _VALUE.fullmatch(text) and not _is_of_a_tool(key)
    }


def _is_of_a_tool(key: str) -> bool:
    domain = key.rpartition("/")[0]
    within = any(domain == it or domain.endswith(f".{it}") for it in _NOT_PASSED_OF)
    return key in _NOT_PASSED or within


def object_labels(request: RunRequest) -> dict[str, str]:
    """Returns the labels by which users and their tools find the work of an object: its own, and
    the usual ones.
    """
    kind, name, namespace = split_key(request.resource)
    usual = {f"{PREFIX}namespace": namespace, "app.kubernetes.io/name": name or kind}
    usual["app.kubernetes.io/component"] = kind
    fitting = {key: text for key, text in usual.items() if _VALUE.fullmatch(text)}
    return {**fitting, **passed_on(request.labels)}


def split_marks(tags: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Returns (labels, annotations) for a Kubernetes object with these tags; see
    remote/sandboxes/sandbox_names.py.
    """
    labels = {
        f"{PREFIX}{name}": tags[name]
        for name in _LABELS
        if name in tags and _VALUE.fullmatch(tags[name])
    }
    others = {
        f"{PREFIX}{name}": text for name, text in tags.items() if f"{PREFIX}{name}" not in labels
    }
    return {**MANAGED, **labels}, others


def tags_of(found: Object) -> dict[str, str]:
    """The tags that an object carries."""
    metadata = found.get("metadata") or {}
    carried = {**(metadata.get("annotations") or {}), **(metadata.get("labels") or {})}
    return {
        key.removeprefix(PREFIX): str(text)
        for key, text in carried.items()
        if key.startswith(PREFIX)
    }


def run_selector(store_id: str, run: str) -> str:
    """Returns the selector of the objects of a run."""
    return f"{store_selector(store_id)},{PREFIX}run={sandbox_names.run_tag(run)}"


def store_selector(store_id: str) -> str:
    """Returns the selector for the objects of a store, and of no other."""
    return ",".join(
        f"{PREFIX}{name}={text}" for name, text in sandbox_names.fleet_tag(store_id).items()
    )


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
    """Builds the PersistentVolumeClaim of a Volume. name: of the claim for that Volume."""
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
