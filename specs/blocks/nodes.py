"""Nodes of a run: several machines that work as one attempt, and a Ray cluster over them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import Field, field_validator, model_serializer, model_validator

from fleetctl.specs.blocks.template import Template
from fleetctl.specs.values.scalars import Bool, NonEmptyText, PositiveCount, Size, Spec

NODES_MAX = 512
_FORM = "a number from 1, or `{min: 2, max: 4}`"
# Without a user and password: a manifest is stored and shown.
_ADDRESS = re.compile(r"https?://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?(/[^\s?#@]*)?")

Port = Annotated[
    int,
    Field(
        strict=True,
        ge=1024,
        le=65535,
    ),
]
NodeCount = Annotated[
    int,
    Field(
        strict=True,
        ge=1,
        le=NODES_MAX,
    ),
]


class NodeRange(Spec):
    """How many machines an attempt has: a number; or the fewest and the most, of which each attempt
    gets as many as can be had when it starts.
    """

    min: NodeCount = Field(description="Fewest nodes to begin with.")
    max: NodeCount = Field(description="Most nodes that it can use.")

    @model_validator(mode="before")
    @classmethod
    def _from_number(cls, value: Any) -> Any:
        if isinstance(value, int) and not isinstance(value, bool):
            if not 1 <= value <= NODES_MAX:
                raise ValueError(f"it must be at {'least 1' if value < 1 else f'most {NODES_MAX}'}")
            return {"min": value, "max": value}
        if isinstance(value, cls):
            return value
        if not isinstance(value, dict):
            raise ValueError(f"it must be {_FORM}")
        return value

    @model_validator(mode="after")
    def _rises(self) -> NodeRange:
        if self.max < self.min:
            raise ValueError("`max` must be at least `min`")
        return self

    @model_serializer
    def _to_number(self) -> int | dict[str, int]:
        if self.min == self.max:
            return self.max
        return {"min": self.min, "max": self.max}

    def __str__(self) -> str:
        if self.min == self.max:
            return str(self.max)
        return f"{self.min} to {self.max}"


class Ray(Spec):
    """A Ray cluster that lives as long as the attempt; `true` is one with its usual settings. With
    `address` the work is a job of a cluster that is there already.
    """

    enabled: Bool = Field(default=True, description="Whether there is one; default true.")
    object_store_memory: Size | None = Field(
        default=None, description="Bytes or `8Gi` on each node; default: as Ray chooses."
    )
    dashboard: Bool = Field(
        default=False, description="Whether the head has its dashboard, 1 GB more; default false."
    )
    port: Port | None = Field(
        default=None, description="Port of the head; default 6379, on `local` a free one."
    )
    address: NonEmptyText | None = Field(
        default=None,
        description="Dashboard of an existing cluster, `http://HOST:8265`; default: its own.",
    )

    @field_validator("address")
    @classmethod
    def _is_an_address(cls, value: str | None) -> str | None:
        if value is not None and not _ADDRESS.fullmatch(value):
            raise ValueError("it must be a URL such as `http://HOST:8265`, with no password in it")
        return value

    @model_validator(mode="after")
    def _is_one_cluster(self) -> Ray:
        if self.address is None:
            return self
        if not self.enabled:
            raise ValueError("`address` names a cluster to use, and `enabled` is false")
        own = {
            "objectStoreMemory": self.object_store_memory,
            "dashboard": self.dashboard,
            "port": self.port,
        }
        for name, value in own.items():
            if value:
                raise ValueError(f"`{name}` is of a cluster that is started; `address` starts none")
        return self

    @model_validator(mode="before")
    @classmethod
    def _from_bool(cls, value: Any) -> Any:
        if isinstance(value, bool):
            return {"enabled": value}
        if not isinstance(value, dict | cls):
            raise ValueError("it must be `true`, `false` or settings such as `{dashboard: true}`")
        return value

    @model_serializer
    def _to_bool(self) -> bool | dict[str, Any]:
        fields = {
            "objectStoreMemory": self.object_store_memory,
            "dashboard": self.dashboard or None,
            "port": self.port,
            "address": self.address,
        }
        values = {name: it for name, it in fields.items() if it is not None}
        if self.enabled and values:
            return values
        return self.enabled


ONE = NodeRange(min=1, max=1)
NO_RAY = Ray(enabled=False)


class GangTemplate(Template):
    """The template of several nodes, made of a template and the fields of its run and stage."""

    nodes: NodeRange = Field(default=ONE, description="Machines of an attempt; default 1.")
    proc_per_node: PositiveCount | None = Field(
        default=None, description="Processes of a launcher; default: one for each GPU, else one."
    )
    ray: Ray = Field(default=NO_RAY, description="Its Ray cluster; default none.")
    rdma: Bool = Field(default=False, description="Whether RDMA joins the nodes; default false.")
    grouped: Bool = Field(default=False, description="Whether it is a group's; default false.")

    @property
    def needs_python(self) -> bool:
        """Returns True for a Ray cluster: Ray is Python."""
        return super().needs_python or self.ray.enabled


def with_nodes(
    template: Template,
    nodes: NodeRange,
    procs: int | None,
    ray: Ray,
    *,
    rdma: bool = False,
    grouped: bool = False,
) -> Template:
    """Returns the template for this number of nodes; unchanged if the nodes need no setting.
    grouped: they are a group of a run, whose other groups they know.
    """
    if nodes == ONE and not ray.enabled and not grouped:
        return template
    values = {name: getattr(template, name) for name in type(template).model_fields}
    return GangTemplate.model_construct(
        **values,
        nodes=nodes,
        proc_per_node=procs,
        ray=ray,
        rdma=rdma,
        grouped=grouped,
    )


def nodes_of(template: Template) -> NodeRange:
    if isinstance(template, GangTemplate):
        return template.nodes
    return ONE


def ray_of(template: Template) -> Ray:
    if isinstance(template, GangTemplate):
        return template.ray
    return NO_RAY


def ray_job_of(
    template: Template,
    names: Iterable[str],
    unit: str,
) -> dict[str, Any] | None:
    """Returns the job as guest/nodes/rayjob.py reads it. names: names of further variables that go
    along with the job; unit: name that all attempts at the same work have in common.
    """
    address = ray_of(template).address
    if address is None:
        return None
    return {"address": address, "names": sorted({*template.env, *names}), "unit": unit}


def unfit_for_address(template: Template) -> str:
    """Returns the field that a job at an existing cluster cannot have, and the reason; or empty."""
    if ray_of(template).address is None:
        return ""
    rules = (
        (
            nodes_of(template).max > 1,
            "its machines are the cluster's; use `nodes: 1`",
        ),
        (template.is_function, "a function runs its tasks in its own containers"),
        (template.python is not None, "a job is a command line; use `command` or `script`"),
        (template.resources.gpu is not None, "a GPU beside it would idle; leave `gpu` out"),
        (bool(template.volumes), "the cluster's machines mount no volume; leave `volumes` out"),
        (template.source is not None, "the cluster's machines have no copy of the `source`"),
        (bool(template.services), "they would run here, beside nothing; leave `services` out"),
        (
            template.workdir is not None,
            "the cluster chooses its directory; leave `workdir` out",
        ),
    )
    return next((why for fails, why in rules if fails), "")


def is_grouped(template: Template) -> bool:
    """Returns True for the template of a group of a run."""
    return isinstance(template, GangTemplate) and template.grouped


def rdma_of(template: Template) -> bool:
    """Returns True if nodes are joined by RDMA; a single node has no other to join."""
    return isinstance(template, GangTemplate) and template.rdma and template.nodes.max > 1


def procs_of(template: Template) -> int:
    """Returns the processes of a launcher on each node: the given number, else one for each GPU,
    else one.
    """
    asked = template.proc_per_node if isinstance(template, GangTemplate) else None
    gpu = template.resources.gpu
    return asked or (gpu.count if gpu is not None else 1)
