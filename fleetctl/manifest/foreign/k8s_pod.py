"""The parts of a pod that only clusters have, as the block `kubernetes` of a template. Pure; called
by k8s_job.py.
"""

from __future__ import annotations

from typing import Any

from fleetctl.manifest.foreign.foreign_mapping import ForeignMapping, drop_empty
from fleetctl.specs.blocks.kubernetes import MAIN

# By their names here.
_TEXTS = {
    "serviceAccount": "serviceAccountName",
    "priorityClass": "priorityClassName",
    "runtimeClass": "runtimeClassName",
}
_LISTS = {
    "topologySpread": "topologySpreadConstraints",
    "tolerations": "tolerations",
    "initContainers": "initContainers",
    "resourceClaims": "resourceClaims",
}
# Fields without a counterpart of ours go through as a patch.
_PATCHED = (
    *("hostNetwork", "hostPID", "hostIPC", "hostUsers", "hostAliases", "dnsPolicy", "dnsConfig"),
    *("schedulerName", "shareProcessNamespace", "preemptionPolicy", "overhead", "readinessGates"),
)
_SHARED = "/dev/shm"  # noqa: S108 - of the pod


class PodParts:
    """Collects the fields of a pod."""

    def __init__(
        self,
        metadata: ForeignMapping,
        pod: ForeignMapping,
        main: ForeignMapping,
    ) -> None:
        self._found: dict[str, Any] = {
            "podLabels": metadata.take("labels", dict),
            "podAnnotations": metadata.take("annotations", dict),
            "affinity": pod.take("affinity", dict),
            "securityContext": pod.take("securityContext", dict),
            "containerSecurityContext": main.take("securityContext", dict),
            **{ours: pod.text(theirs) for ours, theirs in _TEXTS.items()},
            **{ours: pod.take(theirs, list) for ours, theirs in _LISTS.items()},
            "imagePullSecrets": [it.text("name") for it in pod.parts("imagePullSecrets")],
            "configMaps": [],
            "secrets": [],
        }
        pod.take("serviceAccount")  # the older name of the same
        self._patch = drop_empty({name: pod.take(name) for name in _PATCHED})
        self._env: list[dict[str, Any]] = []

    def variables_of(
        self,
        plural: str,
        name: str,
        prefix: str | None,
    ) -> None:
        """Adds the variables of a ConfigMap or a Secret. plural: `configMaps` or `secrets`."""
        self._found[plural].append(drop_empty({"name": name, "prefix": prefix}))

    def files_of(
        self,
        plural: str,
        name: str,
        mount_path: str,
    ) -> None:
        self._found[plural].append({"name": name, "mountPath": mount_path})

    def variable_from(self, name: str, origin: dict[str, Any]) -> None:
        """Adds a variable whose value Kubernetes itself resolves."""
        self._env.append({"name": name, "valueFrom": origin})

    def shares_memory(self, mount_path: str, size: str | None) -> bool:
        """Takes a volume of memory as `sharedMemory`; returns False for a mount at another path."""
        if mount_path != _SHARED:
            return False
        self._found["sharedMemory"] = size
        return True

    def selects(self, labels: dict[str, Any]) -> None:
        self._found["nodeSelector"] = labels

    def takes(self, requests: dict[str, Any], extra: dict[str, Any]) -> None:
        """Requests below the limits, and resources that only clusters have."""
        self._found |= {"requests": requests, "extraResources": extra}

    def block(self) -> dict[str, Any]:
        """Returns the whole block; empty without any field."""
        spec = dict(self._patch)
        if self._env:
            spec["containers"] = [{"name": MAIN, "env": self._env}]
        patch = {"spec": spec} if spec else {}
        return drop_empty({**self._found, "podTemplate": patch})
