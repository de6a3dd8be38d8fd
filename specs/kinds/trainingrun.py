"""TrainingRun: one long job, in stages, that resumes from its checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import ConfigDict, Field, field_validator, model_validator

from fleetctl.specs.blocks.checkpoint import Checkpoint, ProgressDeadline, name_it
from fleetctl.specs.blocks.common import ParamsFrom, WorkPart, WorkSpec
from fleetctl.specs.blocks.kubernetes import PodSettings
from fleetctl.specs.blocks.nodes import (
    NO_RAY,
    ONE,
    NodeRange,
    Ray,
    ray_of,
    unfit_for_address,
    with_nodes,
)
from fleetctl.specs.blocks.placement import PlacementSpec
from fleetctl.specs.blocks.resources import Resources
from fleetctl.specs.blocks.services import Services
from fleetctl.specs.blocks.template import (
    FUNCTION_FIELDS,
    WORK_FIELDS,
    Image,
    Template,
    VolumeMount,
)
from fleetctl.specs.values.scalars import (
    Bool,
    Count,
    EnvName,
    Name,
    NonEmptyText,
    PositiveCount,
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


class TrainingRunSpec(WorkSpec):
    """One long job; its units are its stages, one after the other."""

    template: Template = Field(
        default_factory=Template,
        description="Program and sandbox of stages without their own; default: the stages'.",
    )
    nodes: NodeRange = Field(
        default=ONE,
        description="Machines that work together, or `{min: 2, max: 4}` of them; default 1.",
    )
    proc_per_node: PositiveCount | None = Field(
        default=None,
        description="Processes that a launcher such as torchrun starts on each node; default: one"
        " for each GPU, else one.",
    )
    ray: Ray = Field(
        default=NO_RAY,
        description="Whether a Ray cluster joins the nodes, or its settings; default false.",
    )
    rdma: Bool = Field(
        default=False,
        description="Whether the nodes are to be joined by RDMA, for GPUs that talk much with each"
        " other; default false.",
    )
    stages: tuple[Stage, ...] = Field(
        default=(),
        max_length=1000,
        description="Steps in order; default: the template alone.",
    )
    checkpoint: Checkpoint | None = Field(
        default=None, description="Where progress is kept; default: a restart begins at the start."
    )
    params_from: ParamsFrom | None = Field(
        default=None, description="Parameters of all stages, from a sweep's best trial."
    )
    max_restarts: Count = Field(
        default=0,
        description="Failures of one stage since its last new checkpoint that are restarted;"
        " default 0.",
    )
    progress: ProgressDeadline | None = Field(
        default=None, description="When an attempt counts as hung; default: never."
    )

    @field_validator("stages")
    @classmethod
    def _names_differ(cls, stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
        names = [stage.name for stage in stages]
        for at, name in enumerate(names):
            if (first := names.index(name)) != at:
                both = f"[{first}] and [{at}] are both called `{name}`"
                raise ValueError(f"{both}; each must have its own name")
        return stages

    @model_validator(mode="after")
    def _is_complete(self) -> TrainingRunSpec:
        names = [stage.name for stage in self.stages]
        for stage in self.stages:
            self._is_fit(stage)
        sizes = [self.nodes, *(stage.nodes for stage in self.stages if stage.nodes)]
        if self.rdma and all(nodes.max == 1 for nodes in sizes):
            raise ValueError("`rdma` joins several nodes, and `nodes` is 1")
        for at in range(self.count()):
            template = self.template_of(at)
            where = f"stage `{names[at]}`" if names else "the template"
            if template.work is None and self.params_from is None:
                raise ValueError(f"{where} needs exactly one of `python`, `command` and `script`")
            self._is_fit_for_ray(template, f"stage `{names[at]}`" if names else "the run")
        return self

    def _is_fit_for_ray(self, template: Template, where: str) -> None:
        """Checks the template of a job at an existing Ray cluster. Raises ValueError for a field
        that it cannot have.
        """
        if why := unfit_for_address(template):
            raise ValueError(f"`ray.address` makes {where} a job of a cluster that is there: {why}")
        if ray_of(template).address is not None and self.checkpoint is not None:
            raise ValueError(
                f"`ray.address` makes {where} a job of a cluster that is there, whose files"
                " fleetctl does not see: `checkpoint` cannot look after them; leave it out"
            )

    def _is_fit(self, stage: Stage) -> None:
        """Checks a stage together with the template. Raises ValueError for fields that are no valid
        work together.
        """
        function = self.template.function
        for name in stage.work_fields():
            if function is not None and name in FUNCTION_FIELDS:
                message = f"`{name}` of stage `{stage.name}` belongs to function/{function}"
                raise ValueError(f"{message}; give it there")
        if stage.image is not None and stage.image.requirements is not None:
            message = f"`image.requirements` of stage `{stage.name}` is read of the template alone"
            raise ValueError(f"{message}; list its lines in `pip`")
        gpu = stage.resources.gpu if stage.resources is not None else None
        if gpu is not None and gpu.otherwise and not self.template.is_function:
            message = f"stage `{stage.name}` lists GPUs, which goes with `runtime: function`"
            raise ValueError(f"{message}; name one sort")

    def count(self) -> int:
        """Returns the number of stages; at least 1."""
        return len(self.stages) or 1

    def template_of(self, at: int) -> Template:
        """Returns the template of the stage at position `at` of the list, from 0."""
        nodes = self.nodes
        ray = self.ray
        if not self.stages:
            return self._joined(self.template, nodes, ray)
        stage = self.stages[at]
        own = stage.applied_to(self.template)
        return self._joined(own, stage.nodes or nodes, stage.ray or ray)

    def _joined(
        self,
        template: Template,
        nodes: NodeRange,
        ray: Ray,
    ) -> Template:
        return with_nodes(
            template,
            nodes,
            self.proc_per_node,
            ray,
            rdma=self.rdma,
        )

    def placement_of(self, at: int) -> PlacementSpec:
        """Returns the placement of the stage at position `at`."""
        own = self.stages[at].placement if self.stages else None
        if own is not None:
            return own
        return self.placement

    def parts(self) -> Iterator[WorkPart]:
        """Yields the template, if some stage leaves it unchanged, and each stage with work of its
        own.
        """
        if not self.stages or not all(stage.work_fields() for stage in self.stages):
            template = self._joined(self.template, self.nodes, self.ray)
            yield WorkPart(("template",), template, self.placement)
        for at, stage in enumerate(self.stages):
            if own := stage.work_fields():
                yield WorkPart(("stages", at), self.template_of(at), self.placement_of(at), own)
