"""Settings for work in a Kubernetes cluster: `kubernetes` of Provider objects and of templates.

Read by provider `kubernetes`. Names of secrets and of service accounts alone; no credential.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from fleetctl.specs.values.pod_shape import DIRECTIVE, TEMPLATE, check_shape, patch_shape
from fleetctl.specs.values.scalars import (
    Bool,
    Name,
    NonEmptyText,
    PositiveDuration,
    SandboxPath,
    Size,
    Spec,
    Text,
)

LABELS_MAX = 50
ANY_GPU = "any"  # stands for a GPU's name
Labels = Annotated[dict[NonEmptyText, Text], Field(max_length=LABELS_MAX)]


class Toleration(Spec):
    """A taint of nodes that pods may stand, in the fields of Kubernetes."""

    key: NonEmptyText | None = Field(default=None, description="Key of the taint; default: any.")
    operator: Literal["Exists", "Equal"] | None = Field(
        default=None, description="Whether `value` counts; default `Equal`."
    )
    value: Text | None = Field(default=None, description="Value of the taint; default empty.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        default=None, description="Effect of the taint; default: any."
    )


class ClusterGpus(Spec):
    """How the cluster's nodes say what GPUs they have."""

    resource: NonEmptyText = Field(
        default="nvidia.com/gpu", description="Resource of a GPU; default `nvidia.com/gpu`."
    )
    label: NonEmptyText = Field(
        default="nvidia.com/gpu.product",
        description="Label of nodes with the GPU's model; default `nvidia.com/gpu.product`.",
    )
    names: Annotated[dict[NonEmptyText, NonEmptyText], Field(max_length=100)] = Field(
        default_factory=dict,
        description="The label's value for a name such as `A100`; default: the name itself.",
    )

    def value_of(self, name: str) -> str | None:
        """Returns the label's value on nodes with such a GPU; None if `names` does not have the
        GPU.
        """
        if not self.names:
            return name
        known = {each.upper(): value for each, value in self.names.items()}
        return known.get(name.upper())


class ClusterVolumes(Spec):
    """Claims that are created for Volumes. Existing claims are used as they are."""

    storage_class: NonEmptyText | None = Field(
        default=None, description="Storage class; default: the cluster's own."
    )
    access_mode: Literal["ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"] = Field(
        default="ReadWriteOnce",
        description="Access mode; several nodes need `ReadWriteMany`; default `ReadWriteOnce`.",
    )
    size: Size = Field(default=10 * 1024**3, description="Bytes or `10Gi`; default 10Gi.")


class PackageCache(Spec):
    """A cache that keeps installed packages between pods: a claim or a directory of the nodes."""

    claim: Name | None = Field(default=None, description="Name of a PersistentVolumeClaim.")
    host_path: Annotated[str, Field(pattern="^/")] | None = Field(
        default=None, description="Directory of each node, where the cluster allows that."
    )

    @model_validator(mode="after")
    def _is_one_thing(self) -> PackageCache:
        if (self.claim is None) == (self.host_path is None):
            raise ValueError("a package cache needs exactly one of `claim` and `hostPath`")
        return self


def _checked_as(sort: str, *, whole: bool = True) -> AfterValidator:
    return AfterValidator(lambda value: check_shape(value, sort, whole=whole))


Part = dict[str, Any]
Amounts = Annotated[dict[NonEmptyText, Any], Field(max_length=50), _checked_as("{amount}")]
# Fields that a patch cannot change: how a run is begun, ended and found depends on them.
OURS = {
    "spec": ("restartPolicy", "activeDeadlineSeconds", "subdomain", "hostname"),
    "container": ("command", "args"),
}
MAIN = "main"  # the container of the work
OUR_DOMAIN = "fleetctl.dev/"


def _without_ours(value: dict[str, str]) -> dict[str, str]:
    for name in value:
        if name.startswith(OUR_DOMAIN) or name == "app.kubernetes.io/managed-by":
            raise ValueError(f"`{name}` is fleetctl's own")
    return value


OwnLabels = Annotated[Labels, AfterValidator(_without_ours)]


def _leaves_ours(value: Part) -> Part:
    spec = value.get("spec") or {}
    _without_ours((value.get("metadata") or {}).get("labels") or {})
    for name in OURS["spec"]:
        if name in spec:
            raise ValueError(f"`spec.{name}` is fleetctl's own")
    for one in spec.get("containers") or ():
        if one.get("name") != MAIN:
            raise ValueError(
                f"`spec.containers` has `{MAIN}` alone; what runs beside it is in `initContainers`"
                " with `restartPolicy: Always`, or in the template's `services`"
            )
        for name in (*OURS["container"], DIRECTIVE):
            if name in one:
                raise ValueError(f"`{name}` of container `{MAIN}` is fleetctl's own")
    return value


class KeptHere(Spec):
    """A ConfigMap or a Secret of the pod's namespace: its keys as variables, or as files."""

    name: NonEmptyText = Field(description="Name of the object in the namespace of the pod.")
    mount_path: SandboxPath | None = Field(
        default=None, description="Directory of its keys as files; default: they are variables."
    )
    prefix: Text | None = Field(
        default=None, description="Stands before the names of variables; default none."
    )
    optional: Bool = Field(
        default=False, description="Whether the pod begins without it; default false."
    )

    @model_validator(mode="after")
    def _is_one_way(self) -> KeptHere:
        if self.mount_path is not None and self.prefix is not None:
            raise ValueError("files have no `prefix`: leave out that, or `mountPath`")
        return self


class PodSettings(Spec):
    """Settings of the pods of work. Those of a template override those of the Provider object, and
    those of a stage its template's: mappings key by key, lists entry by entry.
    """

    service_account: Name | None = Field(
        default=None, description="Service account of pods, whose token they get; default: none."
    )
    kueue_queue: Name | None = Field(
        default=None, description="Kueue's LocalQueue that admits each Job; default: none."
    )
    priority_class: NonEmptyText | None = Field(
        default=None, description="Priority class of pods; default: the cluster's own."
    )
    runtime_class: NonEmptyText | None = Field(
        default=None, description="Runtime class of pods, such as `gvisor`; default: none."
    )
    node_selector: Labels = Field(
        default_factory=dict, description="Labels that a node must have; default none."
    )
    affinity: Annotated[Part, _checked_as("Affinity")] = Field(
        default_factory=dict, description="`affinity` of pods, as Kubernetes has it; default none."
    )
    topology_spread: Annotated[
        tuple[Part, ...], Field(max_length=20), _checked_as("[TopologySpreadConstraint]")
    ] = Field(
        default=(),
        description="`topologySpreadConstraints` of pods; by default they count the object's own."
        " Default none.",
    )
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=50)] = Field(
        default=(), description="Taints of nodes that pods tolerate; default none."
    )
    pod_labels: OwnLabels = Field(
        default_factory=dict,
        description="Labels of Jobs and pods beside the object's; default none.",
    )
    pod_annotations: OwnLabels = Field(
        default_factory=dict, description="Annotations of pods; default none."
    )
    security_context: Annotated[Part, _checked_as("PodSecurityContext")] = Field(
        default_factory=dict, description="`securityContext` of pods; default: what is usual here."
    )
    container_security_context: Annotated[Part, _checked_as("SecurityContext")] = Field(
        default_factory=dict,
        description="`securityContext` of the work's container; default: what is usual here.",
    )
    requests: Amounts = Field(
        default_factory=dict,
        description="Requests below the limits of `resources`, such as `{cpu: 500m}`; default: the"
        " limits.",
    )
    extra_resources: Amounts = Field(
        default_factory=dict,
        description="Resources of clusters alone, such as `rdma/ib: 1` or `amd.com/gpu: 8`; default"
        " none.",
    )
    config_maps: Annotated[tuple[KeptHere, ...], Field(max_length=50)] = Field(
        default=(),
        description="ConfigMaps of the pod's namespace that the work gets; default none.",
    )
    secrets: Annotated[tuple[KeptHere, ...], Field(max_length=50)] = Field(
        default=(),
        description="Kubernetes Secrets of that namespace that the work gets; default none.",
    )
    init_containers: Annotated[
        tuple[Part, ...], Field(max_length=20), _checked_as("[Container]")
    ] = Field(
        default=(),
        description="`initContainers`, before all else; with `restartPolicy: Always` beside it."
        " Default none.",
    )
    resource_claims: Annotated[
        tuple[Part, ...], Field(max_length=20), _checked_as("[PodResourceClaim]")
    ] = Field(
        default=(),
        description="`resourceClaims` of pods, all for the work's container (DRA); default none.",
    )
    image_pull_secrets: Annotated[tuple[Name, ...], Field(max_length=20)] = Field(
        default=(), description="Names of Kubernetes Secrets for registries; default none."
    )
    shared_memory: Size | None = Field(
        default=None,
        description="Size of `/dev/shm`, in bytes or `8Gi`; default `resources.memory`, else 16Gi.",
    )
    pod_template: Annotated[
        Part, _checked_as(TEMPLATE, whole=False), AfterValidator(_leaves_ours)
    ] = Field(
        default_factory=dict,
        description="A patch of the pod's template by `kubectl patch`'s rules, `main` has the work;"
        " default none.",
    )

    def merge_under(self, own: PodSettings | None) -> Self:
        """Returns these settings with those of a narrower block, which take precedence: a
        template's over its Provider object's, a stage's over its template's.
        """
        if own is None:
            return self
        changes = {
            name: _lay_over(name, getattr(self, name), getattr(own, name))
            for name in own.model_fields_set
        }
        return self.model_copy(update=changes)

    @field_validator("topology_spread", "init_containers", "resource_claims", mode="before")
    @classmethod
    def _is_listed(cls, value: Any) -> Any:
        if isinstance(value, list):
            return tuple(value)
        return value


class ClusterSettings(PodSettings):
    """Namespace, account and form of the pods in a cluster."""

    namespace: Name | None = Field(
        default=None,
        description="Namespace of all that is created; default: the object's own, and outside of a"
        " cluster the context's.",
    )
    namespaces: Annotated[dict[Name, Name], Field(max_length=1000)] = Field(
        default_factory=dict,
        description="Namespace to create in, by that of the object; default: as `namespace` says.",
    )
    python_image: NonEmptyText = Field(
        default="python:{python}{slim}-bookworm",
        description="Image of plain Python; default `python:{python}{slim}-bookworm`.",
    )
    pip_image: NonEmptyText = Field(
        default="ghcr.io/astral-sh/uv:python{python}-bookworm{slim}",
        description="Image with uv, where there is `image.pip`; default: one of uv's own.",
    )
    package_cache: PackageCache | None = Field(
        default=None, description="Where installed packages are kept; default: nowhere."
    )
    volumes: ClusterVolumes = Field(
        default_factory=ClusterVolumes, description="Claims that are created for Volumes."
    )
    gpus: ClusterGpus = Field(
        default_factory=ClusterGpus, description="Names of GPUs on the labels of nodes."
    )
    pending_seconds: PositiveDuration = Field(
        default=86_400.0,
        description="How long a Job may wait for its pod, until it is created again; default a"
        " day.",
    )
    gather_seconds: PositiveDuration = Field(
        default=600.0,
        description="How long some of several nodes may wait for the others; default 10 min.",
    )

    def label_of(self, label: str, gpu: str | None) -> str | None:
        """Returns the label's value on each node that a pod with such a GPU (its name; None:
        without one) can get; None if that may differ.
        """
        if gpu is not None and gpu.lower() != ANY_GPU and label == self.gpus.label:
            return self.gpus.value_of(gpu)
        return self.node_selector.get(label)

    @model_validator(mode="before")
    @classmethod
    def _no_braces_but_ours(cls, value: Any) -> Any:
        for field in ("pythonImage", "python_image", "pipImage", "pip_image"):
            text = value.get(field) if isinstance(value, dict) else None
            if isinstance(text, str):
                left = text.replace("{python}", "").replace("{slim}", "")
                if "{" in left or "}" in left:
                    raise ValueError(f"`{field}` may hold `{{python}}` and `{{slim}}` alone")
        return value


def _lay_over(
    field: str,
    theirs: Any,
    own: Any,
) -> Any:
    """Returns a field of the wider block, overridden by the narrower block's field."""
    if field == "pod_template":
        return patch_shape(theirs, own, TEMPLATE)
    if isinstance(own, dict):
        return {**theirs, **own}
    if isinstance(own, tuple):
        names = {_entry_name(it) for it in own} - {None}
        return (*(it for it in theirs if it not in own and _entry_name(it) not in names), *own)
    return own


def _entry_name(entry: Any) -> str | None:
    """Returns the name by which an entry of a list replaces another; None if it
    replaces no other.
    """
    if isinstance(entry, dict):
        return entry.get("name")
    return getattr(entry, "name", None)
