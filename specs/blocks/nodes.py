"""Several machines that work as one attempt, and a Ray cluster over them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_serializer, model_validator

from fleetctl.specs.blocks.template import Template
from fleetctl.specs.values.scalars import Bool, PositiveCount, Size, Spec

NODES_MAX = 512
_FORM = "a number from 1, or `{min: 2, max: 4}`"

Port = Annotated[int, Field(strict=True, ge=1024, le=65535)]
NodeCount = Annotated[int, Field(strict=True, ge=1, le=NODES_MAX)]


class Nodes(Spec):
    """How many machines an attempt has: a number; or the fewest and the most, of which each attempt
    gets as many as can be had when it starts.
    """

    min: NodeCount = Field(description="The fewest that will do.")
    max: NodeCount = Field(description="The most that are of use.")

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
    def _rises(self) -> Nodes:
        if self.max < self.min:
            raise ValueError("`max` must be at least `min`")
        return self

    @model_serializer
    def _to_number(self) -> int | dict[str, int]:
        return self.max if self.min == self.max else {"min": self.min, "max": self.max}

    def __str__(self) -> str:
        return str(self.max) if self.min == self.max else f"{self.min} to {self.max}"


class Ray(Spec):
    """A Ray cluster that lives as long as the attempt; `true` is one with its usual settings."""

    enabled: Bool = Field(default=True, description="Whether there is one; default true.")
    object_store_memory: Size | None = Field(
        default=None, description="Bytes or `8Gi` on each node; default: as Ray chooses."
    )
    dashboard: Bool = Field(
        default=False, description="Whether the head has its dashboard, 1 GB more; default false."
    )
    port: Port | None = Field(
        default=None, description="Where the head listens; default 6379, on `local` a free one."
    )

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
        }
        values = {name: it for name, it in fields.items() if it is not None}
        return values if self.enabled and values else self.enabled


ONE, NO_RAY = Nodes(min=1, max=1), Ray(enabled=False)


class GangTemplate(Template):
    """What several nodes run. Made of a template and of what its run and stage say beside it."""

    nodes: Nodes = Field(default=ONE, description="Machines of an attempt; default 1.")
    proc_per_node: PositiveCount | None = Field(
        default=None, description="Of a launcher; default: one for each GPU, else one."
    )
    ray: Ray = Field(default=NO_RAY, description="Its Ray cluster; default none.")
    rdma: Bool = Field(default=False, description="Whether RDMA joins the nodes; default false.")

    @property
    def needs_python(self) -> bool:
        """Ray is Python."""
        return super().needs_python or self.ray.enabled


def with_nodes(
    template: Template, nodes: Nodes, procs: int | None, ray: Ray, *, rdma: bool = False
) -> Template:
    """The template for so many nodes; as it is where there is nothing to say of them."""
    if nodes == ONE and not ray.enabled:
        return template
    values = {name: getattr(template, name) for name in type(template).model_fields}
    return GangTemplate.model_construct(
        **values, nodes=nodes, proc_per_node=procs, ray=ray, rdma=rdma
    )


def nodes_of(template: Template) -> Nodes:
    return template.nodes if isinstance(template, GangTemplate) else ONE


def ray_of(template: Template) -> Ray:
    return template.ray if isinstance(template, GangTemplate) else NO_RAY


def rdma_of(template: Template) -> bool:
    """Of one node there is nothing to join."""
    return isinstance(template, GangTemplate) and template.rdma and template.nodes.max > 1


def procs_of(template: Template) -> int:
    """Processes of a launcher on each node: as asked for, else one for each GPU, else one."""
    asked = template.proc_per_node if isinstance(template, GangTemplate) else None
    gpu = template.resources.gpu
    return asked or (gpu.count if gpu is not None else 1)
