"""The parts of a TrainingRun: stages, one after the other, and groups, side by side."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator

from fleetctl.specs.blocks.checkpoint import name_it
from fleetctl.specs.blocks.kubernetes import PodSettings
from fleetctl.specs.blocks.nodes import NodeRange, Port, Ray
from fleetctl.specs.blocks.placement import PlacementSpec
from fleetctl.specs.blocks.resources import Resources
from fleetctl.specs.blocks.services import Services
from fleetctl.specs.blocks.template import WORK_FIELDS, Image, Template, VolumeMount
from fleetctl.specs.values.scalars import (
    EnvName,
    Name,
    NonEmptyText,
    PositiveDuration,
    Spec,
    Text,
    env_of,
    require_at_most_one,
)

ONE_AT_MOST = "a stage takes at most one of `python`, `command` and `script`"
STAGE = "stage"  # the parameter that names the current stage
# Fields of a stage that replace the template's.
_IN_PLACE = (
    "image",
    "resources",
    "secrets",
    "volumes",
    "workdir",
    "timeout_seconds",
    "services",
)


class Stage(Spec):
    """One step of a run; what it leaves out it takes from the template."""

    model_config = ConfigDict(
        json_schema_extra=require_at_most_one(*WORK_FIELDS, message=ONE_AT_MOST)
    )

    name: Name = Field(description="Unique among the stages.")
    python: NonEmptyText | None = Field(
        default=None, description="Python source in place of the template's."
    )
    command: tuple[Text, ...] | None = Field(
        default=None,
        min_length=1,
        description="Program and arguments in place of the template's.",
    )
    script: NonEmptyText | None = Field(
        default=None, description="Shell text in place of the template's."
    )
    env: dict[EnvName, Text] = Field(
        default_factory=dict, description="Variables added to the template's; default none."
    )
    timeout_seconds: PositiveDuration | None = Field(
        default=None, description="Seconds or `5m` for one attempt; default: the template's."
    )
    resources: Resources | None = Field(
        default=None, description="In place of the template's; `{}` asks for nothing."
    )
    image: Image | None = Field(default=None, description="In place of the template's.")
    volumes: tuple[VolumeMount, ...] | None = Field(
        default=None, description="In place of the template's; `[]` mounts none."
    )
    secrets: tuple[Name, ...] | None = Field(
        default=None, description="In place of the template's; `[]` names none."
    )
    workdir: NonEmptyText | None = Field(default=None, description="In place of the template's.")
    services: Services | None = Field(
        default=None, description="In place of the template's; `[]` starts none."
    )
    kubernetes: PodSettings | None = Field(
        default=None,
        description="Settings of its pods, laid over the template's block; default: those of the"
        " block.",
    )
    placement: PlacementSpec | None = Field(
        default=None, description="Where this stage may run; default: as the others."
    )
    nodes: NodeRange | None = Field(default=None, description="In place of the run's.")
    ray: Ray | None = Field(default=None, description="In place of the run's.")
    resume_args: tuple[Text, ...] | None = Field(
        default=None, description="In place of the checkpoint's; `[]` adds none."
    )

    @field_validator("env", mode="before")
    @classmethod
    def _env_from_list(cls, value: Any) -> Any:
        return env_of(value)

    @model_validator(mode="after")
    def _has_one_work(self) -> Stage:
        if sum(getattr(self, name) is not None for name in WORK_FIELDS) > 1:
            raise ValueError(ONE_AT_MOST)
        name_it(self.resume_args or ())
        return self

    def applied_to(self, template: Template) -> Template:
        """The template that this stage runs."""
        changes: dict[str, Any] = {}
        if any(getattr(self, name) is not None for name in WORK_FIELDS):
            changes = {name: getattr(self, name) for name in WORK_FIELDS}
        if self.env:
            changes["env"] = {**template.env, **self.env}
        if self.kubernetes is not None:
            changes["kubernetes"] = (template.kubernetes or PodSettings()).merge_under(
                self.kubernetes
            )
        changes |= {name: it for name in _IN_PLACE if (it := getattr(self, name)) is not None}
        return template.model_copy(update=changes)

    def work_fields(self) -> tuple[str, ...]:
        """Returns the fields it has among those that replace the template's, and the run's."""
        beside = ("kubernetes", "placement", "nodes", "ray")
        return tuple(it for it in (*_IN_PLACE, *beside) if getattr(self, it) is not None)


class NodeGroup(Stage):
    """Nodes of a run that work at the same time as its other groups, with work of their own; what
    it leaves out it takes from the template.
    """

    name: Name = Field(description="Unique among the groups.")
    nodes: NodeRange | None = Field(default=None, description="Machines of this group; default 1.")
    port: Port | None = Field(
        default=None,
        description="Port that each node listens on, in its address; default: addresses have none.",
    )
    restart_policy: Literal["Group", "All"] = Field(
        default="Group",
        description="Which groups start again once this one has failed: it alone, or all; default"
        " Group.",
    )

    @model_validator(mode="after")
    def _has_a_number(self) -> NodeGroup:
        if self.nodes is not None and self.nodes.min != self.nodes.max:
            low = self.nodes.min
            raise ValueError(f"`nodes` of a group is one number, such as `{low}`: others have them")
        return self
