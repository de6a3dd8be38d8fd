"""Pods, alone and as templates: what the server fills in, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.emulators.kubernetes.schema.names import label_problems, suffix
from tests.emulators.kubernetes.schema.quantities import quantity
from tests.emulators.kubernetes.schema.validation import (
    Cause,
    cause,
    invalid_value,
    required,
    unsupported,
)

Spec = dict[str, Any]
TOKENS = "/var/run/secrets/kubernetes.io/serviceaccount"
HUGE = "hugepages-"
POLICIES = ["Always", "Never", "OnFailure"]


def default_spec(spec: Spec) -> None:
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    if spec.get("serviceAccountName"):
        spec["serviceAccount"] = spec["serviceAccountName"]
    for one in (*spec.get("initContainers", ()), *spec.get("containers", ())):
        _default_container(one)
    for volume in spec.get("volumes", ()):
        for kind, mode in (("secret", 420), ("configMap", 420), ("downwardAPI", 420)):
            if isinstance(volume.get(kind), dict):
                volume[kind].setdefault("defaultMode", mode)
        if "projected" in volume:
            volume["projected"].setdefault("defaultMode", 420)
        if not set(volume) - {"name"}:
            volume["emptyDir"] = {}


def _default_container(one: Spec) -> None:
    tag = one.get("image", "").rpartition("/")[2].partition(":")[2]
    pull = "Always" if tag in ("", "latest") and "@" not in one.get("image", "") else "IfNotPresent"
    one.setdefault("imagePullPolicy", pull)
    one.setdefault("terminationMessagePath", "/dev/termination-log")
    one.setdefault("terminationMessagePolicy", "File")
    resources = one.setdefault("resources", {})
    if resources.get("limits"):
        resources["requests"] = {**resources["limits"], **resources.get("requests", {})}
    for port in one.get("ports", ()):
        port.setdefault("protocol", "TCP")
    for variable in one.get("env", ()):
        if "fieldRef" in variable.get("valueFrom", {}):
            variable["valueFrom"]["fieldRef"].setdefault("apiVersion", "v1")


def admit(pod: dict[str, Any]) -> None:
    """What admission plugins add to a pod that is created."""
    spec = pod["spec"]
    spec.setdefault("serviceAccountName", "default")
    spec["serviceAccount"] = spec["serviceAccountName"]
    spec.setdefault("enableServiceLinks", True)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    tolerations = spec.setdefault("tolerations", [])
    for name in ("not-ready", "unreachable"):
        key = f"node.kubernetes.io/{name}"
        if not any(it.get("key") in (key, None) for it in tolerations):
            one = {"key": key, "operator": "Exists", "effect": "NoExecute"}
            tolerations.append({**one, "tolerationSeconds": 300})
    if spec.get("automountServiceAccountToken") is not False:
        _mount_token(spec)
    pod["status"] = {"phase": "Pending", "qosClass": _quality(spec)}


def _mount_token(spec: Spec) -> None:
    name = f"kube-api-access-{suffix()}"
    root = {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    reference = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    sources = [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": root},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": reference}]}},
    ]
    used = False
    for one in (*spec.get("initContainers", ()), *spec["containers"]):
        mounts = one.setdefault("volumeMounts", [])
        if not any(it["mountPath"] == TOKENS for it in mounts):
            mounts.append({"name": name, "readOnly": True, "mountPath": TOKENS})
            used = True
    if used:
        projected = {"sources": sources, "defaultMode": 420}
        spec.setdefault("volumes", []).append({"name": name, "projected": projected})


def _quality(spec: Spec) -> str:
    sizes = [it.get("resources", {}) for it in spec["containers"]]
    if not any(it.get("requests") or it.get("limits") for it in sizes):
        return "BestEffort"
    whole = all(
        {"cpu", "memory"} <= set(it.get("limits", {})) and it["limits"] == it.get("requests")
        for it in sizes
    )
    return "Guaranteed" if whole else "Burstable"


def problems(spec: Spec, path: str) -> Iterator[Cause]:
    if not spec.get("containers"):
        yield required(f"{path}.containers")
    if spec.get("restartPolicy") not in POLICIES:
        yield unsupported(f"{path}.restartPolicy", spec.get("restartPolicy"), POLICIES)
    volumes = {it.get("name") for it in spec.get("volumes", ())}
    seen: set[str] = set()
    for kind in ("initContainers", "containers"):
        for number, one in enumerate(spec.get(kind) or ()):
            where = f"{path}.{kind}[{number}]"
            if one.get("name") in seen:
                yield cause("FieldValueDuplicate", f"{where}.name", value=one["name"])
            seen.add(one.get("name", ""))
            yield from _container_problems(one, where, volumes)
    grace = spec.get("activeDeadlineSeconds", 1)
    if grace < 1:
        detail = "must be between 1 and 2147483647, inclusive"
        yield invalid_value(f"{path}.activeDeadlineSeconds", grace, detail)


def _container_problems(one: Spec, path: str, volumes: set[Any]) -> Iterator[Cause]:
    for field in ("name", "image"):
        if not one.get(field):
            yield required(f"{path}.{field}")
    for number, mount in enumerate(one.get("volumeMounts") or ()):
        if mount.get("name") not in volumes:
            where = f"{path}.volumeMounts[{number}].name"
            yield cause("FieldValueNotFound", where, value=mount.get("name"))
    resources = one.get("resources", {})
    limits = resources.get("limits") or {}
    named = {*limits, *(resources.get("requests") or {})}
    if any(it.startswith(HUGE) for it in named) and not named & {"cpu", "memory"}:
        yield cause("FieldValueForbidden", f"{path}.resources", "HugePages require cpu or memory")
    for kind in ("limits", "requests"):
        for name, text in (resources.get(kind) or {}).items():
            where = f"{path}.resources.{kind}[{name}]"
            size = quantity(text)
            if "/" in name and kind == "requests" and name not in limits:
                yield required(
                    f"{path}.resources.limits", "Limit must be set for non overcommitable resources"
                )
            if (
                "/" not in name
                and name not in ("cpu", "memory", "ephemeral-storage")
                and not (name.startswith(HUGE))
            ):
                detail = "must be a standard resource type or fully qualified"
                yield invalid_value(f"{path}.resources.{kind}", name, detail)
            elif (
                kind == "requests"
                and ("/" in name or name.startswith(HUGE))
                and name in limits
                and size != quantity(limits[name])
            ):
                detail = f"must be equal to {name} limit of {limits[name]}"
                yield invalid_value(f"{path}.resources.requests", str(text), detail)
            elif kind == "requests" and name in limits and size > quantity(limits[name]):
                detail = f"must be less than or equal to {name} limit of {limits[name]}"
                yield invalid_value(f"{path}.resources.requests", str(text), detail)
            elif size < 0:
                yield invalid_value(where, text, "must be greater than or equal to 0")
    for number, variable in enumerate(one.get("env") or ()):
        if not variable.get("name"):
            yield required(f"{path}.env[{number}].name")


def template_problems(template: dict[str, Any], path: str) -> Iterator[Cause]:
    labels = (template.get("metadata") or {}).get("labels") or {}
    yield from label_problems(f"{path}.metadata.labels", labels)
    yield from problems(template.get("spec") or {}, f"{path}.spec")


def requests_of(spec: Spec) -> dict[str, float]:
    """What the scheduler counts of a pod: the sum of its containers, or its largest init."""
    total: dict[str, float] = {"pods": 1.0}
    for one in spec.get("containers", ()):
        for name, text in one.get("resources", {}).get("requests", {}).items():
            total[name] = total.get(name, 0.0) + quantity(text)
    for one in spec.get("initContainers", ()):
        for name, text in one.get("resources", {}).get("requests", {}).items():
            total[name] = max(total.get(name, 0.0), quantity(text))
    return total
