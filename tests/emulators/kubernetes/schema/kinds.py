"""What is particular to a built-in kind when it is written: defaults, preparation, checks."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.emulators.kubernetes.schema import jobs, pods
from tests.emulators.kubernetes.schema.names import name_problems
from tests.emulators.kubernetes.schema.structural import schema_problems
from tests.emulators.kubernetes.schema.validation import Cause, cause, invalid_value, required
from tests.emulators.kubernetes.store.errors import ApiError

Object = dict[str, Any]
DATA_BYTES_MAX = 1 << 20
_POD_CHANGES = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only"
    " additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set"
    " to 1 if it was previously negative)"
)


def _nothing(_: Object) -> None:
    return None


def _no_problems(_: Object) -> Iterable[Cause]:
    return ()


def _no_changes(_old: Object, _new: Object) -> Iterable[Cause]:
    return ()


@dataclass(frozen=True, slots=True)
class Kind:
    """default: on each write; prepare: once, when it has a uid; problems: of the whole object;
    changes: what an update may not do; generation: whether spec changes are counted.
    """

    default: Callable[[Object], None] = _nothing
    prepare: Callable[[Object], None] = _nothing
    problems: Callable[[Object], Iterable[Cause]] = _no_problems
    changes: Callable[[Object, Object], Iterable[Cause]] = _no_changes
    generation: bool = False


def _default_pod(pod: Object) -> None:
    pods.default_spec(pod.setdefault("spec", {}))


def _pod_problems(pod: Object) -> Iterator[Cause]:
    yield from pods.problems(pod["spec"], "spec")


def _pod_changes(old: Object, new: Object) -> Iterator[Cause]:
    def fixed(spec: Object) -> Object:
        rest = {k: v for k, v in spec.items() if k not in ("tolerations", "activeDeadlineSeconds")}
        for name in ("containers", "initContainers"):
            rest[name] = [{**it, "image": ""} for it in spec.get(name, ())]
        return rest

    before, after = fixed(old["spec"]), fixed(new["spec"])
    gates = "schedulingGates"
    if len(after.get(gates, ())) <= len(before.get(gates, ())):
        before.pop(gates, None), after.pop(gates, None)
    if before != after:
        yield cause("FieldValueForbidden", "spec", _POD_CHANGES)


def _default_secret(secret: Object) -> None:
    secret.setdefault("type", "Opaque")
    plain = secret.pop("stringData", None)
    if plain:
        data = secret["data"] = secret.get("data") or {}
        data.update({k: base64.b64encode(v.encode()).decode() for k, v in plain.items()})


def _secret_problems(secret: Object) -> Iterator[Cause]:
    size = 0
    for value in (secret.get("data") or {}).values():
        try:
            size += len(base64.b64decode(value or "", validate=True))
        except binascii.Error as error:
            message = "illegal base64 data at input byte 0"
            text = f'Secret in version "v1" cannot be handled as a Secret: {message}'
            raise ApiError(400, text) from error
    if size > DATA_BYTES_MAX:
        detail = f"may not be more than {DATA_BYTES_MAX} bytes"
        yield cause("FieldValueTooLong", "data", detail)


def _config_problems(config: Object) -> Iterator[Cause]:
    if sum(len(it.encode()) for it in (config.get("data") or {}).values()) > DATA_BYTES_MAX:
        yield cause("FieldValueTooLong", "", f"may not be more than {DATA_BYTES_MAX} bytes")


def _data_changes(old: Object, new: Object) -> Iterator[Cause]:
    if old.get("type") != new.get("type"):
        yield invalid_value("type", new.get("type"), "field is immutable")
    if old.get("immutable"):
        if not new.get("immutable"):
            yield cause(
                "FieldValueForbidden", "immutable", "field is immutable when `immutable` is set"
            )
        if old.get("data") != new.get("data"):
            yield cause("FieldValueForbidden", "data", "field is immutable when `immutable` is set")


def _default_claim(claim: Object) -> None:
    spec = claim.setdefault("spec", {})
    spec.setdefault("volumeMode", "Filesystem")


def _prepare_claim(claim: Object) -> None:
    claim["metadata"].setdefault("finalizers", []).append("kubernetes.io/pvc-protection")
    claim["status"] = {"phase": "Pending"}


def _claim_problems(claim: Object) -> Iterator[Cause]:
    spec = claim["spec"]
    if not spec.get("accessModes"):
        yield required("spec.accessModes", "at least 1 access mode is required")
    if "storage" not in (spec.get("resources") or {}).get("requests", {}):
        yield required("spec.resources[storage]")


def _claim_changes(old: Object, new: Object) -> Iterator[Cause]:
    def fixed(spec: Object) -> Object:
        return {k: v for k, v in spec.items() if k not in ("resources", "volumeName")}

    if fixed(old["spec"]) != fixed(new["spec"]):
        detail = (
            "spec is immutable after creation except resources.requests and"
            " volumeAttributesClassName for bound claims"
        )
        yield cause("FieldValueForbidden", "spec", detail)


def _prepare_namespace(namespace: Object) -> None:
    metadata = namespace["metadata"]
    metadata.setdefault("labels", {})["kubernetes.io/metadata.name"] = metadata["name"]
    namespace["spec"] = {"finalizers": ["kubernetes"]}
    namespace["status"] = {"phase": "Active"}


def _default_service(service: Object) -> None:
    spec = service.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    spec.setdefault("internalTrafficPolicy", "Cluster")
    for port in spec.get("ports", ()):
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))


def _default_workload(workload: Object) -> None:
    spec = workload.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    template = spec.setdefault("template", {})
    template.setdefault("metadata", {})
    pods.default_spec(template.setdefault("spec", {}))


def _default_deployment(workload: Object) -> None:
    _default_workload(workload)
    rolling = {"maxUnavailable": "25%", "maxSurge": "25%"}
    spec = workload["spec"]
    spec.setdefault("strategy", {"type": "RollingUpdate", "rollingUpdate": rolling})
    spec.setdefault("progressDeadlineSeconds", 600)


def _workload_problems(workload: Object) -> Iterator[Cause]:
    spec = workload["spec"]
    if not spec.get("selector"):
        yield required("spec.selector")
    else:
        labels = spec["template"]["metadata"].get("labels") or {}
        wanted = spec["selector"].get("matchLabels") or {}
        if any(labels.get(k) != v for k, v in wanted.items()):
            detail = "`selector` does not match template `labels`"
            yield invalid_value("spec.template.metadata.labels", labels, detail)
    yield from pods.template_problems(spec["template"], "spec.template")


def _priority_changes(old: Object, new: Object) -> Iterator[Cause]:
    if old.get("value") != new.get("value"):
        yield cause("FieldValueForbidden", "value", "may not be changed in an update.")


def _binding_changes(old: Object, new: Object) -> Iterator[Cause]:
    if old.get("roleRef") != new.get("roleRef"):
        yield invalid_value("roleRef", new.get("roleRef"), "cannot change roleRef")


def _lease_problems(lease: Object) -> Iterator[Cause]:
    seconds = (lease.get("spec") or {}).get("leaseDurationSeconds")
    if seconds is not None and seconds <= 0:
        yield invalid_value("spec.leaseDurationSeconds", seconds, "must be greater than 0")


def _definition_problems(definition: Object) -> Iterator[Cause]:
    spec = definition.get("spec") or {}
    names = spec.get("names") or {}
    wanted = f"{names.get('plural')}.{spec.get('group')}"
    name = definition["metadata"]["name"]
    if name != wanted:
        detail = 'must be spec.names.plural+"."+spec.group'
        yield invalid_value("metadata.name", name, detail)
    if not spec.get("versions"):
        yield required("spec.versions", "must have at least one version")
    for number, one in enumerate(spec.get("versions") or ()):
        if not (one.get("schema") or {}).get("openAPIV3Schema"):
            yield required(
                f"spec.versions[{number}].schema.openAPIV3Schema", "schemas are required"
            )
    if sum(bool(it.get("storage")) for it in spec.get("versions") or ()) != 1:
        detail = "must have exactly one version marked as storage version"
        yield invalid_value("spec.versions", spec.get("versions"), detail)
    yield from schema_problems(definition)
    yield from name_problems("customresourcedefinitions", name)


def _default_definition(definition: Object) -> None:
    spec = definition.setdefault("spec", {})
    spec.setdefault("conversion", {"strategy": "None"})
    names = spec.setdefault("names", {})
    if names.get("kind"):
        names.setdefault("singular", names["kind"].lower())
        names.setdefault("listKind", names["kind"] + "List")


KINDS: dict[tuple[str, str], Kind] = {
    ("", "pods"): Kind(_default_pod, pods.admit, _pod_problems, _pod_changes, generation=True),
    ("", "secrets"): Kind(_default_secret, problems=_secret_problems, changes=_data_changes),
    ("", "configmaps"): Kind(problems=_config_problems, changes=_data_changes),
    ("", "persistentvolumeclaims"): Kind(
        _default_claim, _prepare_claim, _claim_problems, _claim_changes
    ),
    ("", "namespaces"): Kind(prepare=_prepare_namespace),
    ("", "services"): Kind(_default_service),
    ("batch", "jobs"): Kind(
        jobs.default, jobs.prepare, jobs.problems, jobs.changes, generation=True
    ),
    ("apps", "deployments"): Kind(
        _default_deployment, problems=_workload_problems, generation=True
    ),
    ("apps", "replicasets"): Kind(_default_workload, problems=_workload_problems, generation=True),
    ("apps", "statefulsets"): Kind(_default_workload, problems=_workload_problems, generation=True),
    ("apps", "daemonsets"): Kind(generation=True),
    ("batch", "cronjobs"): Kind(generation=True),
    ("coordination.k8s.io", "leases"): Kind(problems=_lease_problems),
    ("scheduling.k8s.io", "priorityclasses"): Kind(changes=_priority_changes),
    ("rbac.authorization.k8s.io", "rolebindings"): Kind(changes=_binding_changes),
    ("rbac.authorization.k8s.io", "clusterrolebindings"): Kind(changes=_binding_changes),
    ("policy", "poddisruptionbudgets"): Kind(generation=True),
    ("networking.k8s.io", "ingresses"): Kind(generation=True),
    ("networking.k8s.io", "networkpolicies"): Kind(generation=True),
    ("apiextensions.k8s.io", "customresourcedefinitions"): Kind(
        _default_definition, problems=_definition_problems, generation=True
    ),
}
PLAIN = Kind()
CUSTOM = Kind(generation=True)


def kind_of(key: tuple[str, str], *, custom: bool) -> Kind:
    return CUSTOM if custom else KINDS.get(key, PLAIN)
