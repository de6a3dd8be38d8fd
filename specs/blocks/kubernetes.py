"""How work is run in a Kubernetes cluster: the `kubernetes` block of a Provider object.

Read by provider `kubernetes`. Names of secrets and of service accounts alone; no credential.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from fleetctl.specs.values.scalars import Name, NonEmptyText, PositiveDuration, Size, Spec, Text

LABELS_MAX = 50
ANY_GPU = "any"  # in place of a GPU's name
Labels = Annotated[dict[NonEmptyText, Text], Field(max_length=LABELS_MAX)]


class Toleration(Spec):
    """A taint of nodes that pods may stand, in the fields of Kubernetes."""

    key: NonEmptyText | None = Field(default=None, description="Of the taint; default: any.")
    operator: Literal["Exists", "Equal"] | None = Field(
        default=None, description="Whether `value` counts; default `Equal`."
    )
    value: Text | None = Field(default=None, description="Of the taint; default empty.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        default=None, description="Of the taint; default: any."
    )


class ClusterGpus(Spec):
    """How the cluster's nodes say what GPUs they have."""

    resource: NonEmptyText = Field(
        default="nvidia.com/gpu", description="Resource of a GPU; default `nvidia.com/gpu`."
    )
    label: NonEmptyText = Field(
        default="nvidia.com/gpu.product",
        description="Label of nodes that tells the sort; default `nvidia.com/gpu.product`.",
    )
    names: Annotated[dict[NonEmptyText, NonEmptyText], Field(max_length=100)] = Field(
        default_factory=dict,
        description="The label's value for a name such as `A100`; default: the name itself.",
    )

    def value_of(self, name: str) -> str | None:
        """The label's value on nodes with such a GPU; None where `names` does not know it."""
        if not self.names:
            return name
        known = {each.upper(): value for each, value in self.names.items()}
        return known.get(name.upper())


class ClusterVolumes(Spec):
    """What claims are made for Volumes. Those that are there already are used as they are."""

    storage_class: NonEmptyText | None = Field(
        default=None, description="Storage class; default: the cluster's own."
    )
    access_mode: Literal["ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"] = Field(
        default="ReadWriteOnce",
        description="Access mode; several nodes need `ReadWriteMany`; default `ReadWriteOnce`.",
    )
    size: Size = Field(default=10 * 1024**3, description="Bytes or `10Gi`; default 10Gi.")


class PackageCache(Spec):
    """Where installed packages are kept between pods: one of both."""

    claim: Name | None = Field(default=None, description="Name of a PersistentVolumeClaim.")
    host_path: Annotated[str, Field(pattern="^/")] | None = Field(
        default=None, description="Directory of each node, where the cluster allows that."
    )

    @model_validator(mode="after")
    def _is_one_thing(self) -> PackageCache:
        if (self.claim is None) == (self.host_path is None):
            raise ValueError("a package cache needs exactly one of `claim` and `hostPath`")
        return self


class ClusterSettings(Spec):
    """Where in the cluster pods run, and as what."""

    namespace: Name | None = Field(
        default=None, description="Namespace of all that is made; default: the context's own."
    )
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
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=50)] = Field(
        default=(), description="Taints of nodes that pods may stand; default none."
    )
    image_pull_secrets: Annotated[tuple[Name, ...], Field(max_length=20)] = Field(
        default=(), description="Names of Kubernetes Secrets for registries; default none."
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
        default_factory=ClusterVolumes, description="What claims are made for Volumes."
    )
    gpus: ClusterGpus = Field(
        default_factory=ClusterGpus, description="How nodes say what GPUs they have."
    )
    pending_seconds: PositiveDuration = Field(
        default=86_400.0,
        description="How long a Job may wait for its pod, until it is made anew; default a day.",
    )
    gather_seconds: PositiveDuration = Field(
        default=600.0,
        description="How long some of several nodes may wait for the others; default 10 min.",
    )
    shared_memory: Size | None = Field(
        default=None,
        description="Of `/dev/shm`, with a GPU, nodes or Ray; default: the task's memory, else 16Gi.",
    )

    def label_of(self, label: str, gpu: str | None) -> str | None:
        """Its value on each node that a pod with such a GPU (its name; None: without one) can get;
        None where that may differ.
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
