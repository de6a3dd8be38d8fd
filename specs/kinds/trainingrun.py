"""TrainingRun: one long job, in stages, that resumes from its checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import Field, field_validator, model_validator

from fleetctl.specs.blocks.checkpoint import Checkpoint, ProgressDeadline
from fleetctl.specs.blocks.common import ParamsFrom, WorkPart, WorkSpec
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
from fleetctl.specs.blocks.stages import NodeGroup, Stage
from fleetctl.specs.blocks.template import FUNCTION_FIELDS, Template
from fleetctl.specs.values.scalars import Bool, Count, Name, PositiveCount

STAGE = "stage"  # the parameter that names the current stage, or the group
GROUPS_MAX = 32  # each is an attempt of its own; all begin in one pass


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
    groups: tuple[NodeGroup, ...] = Field(
        default=(),
        max_length=GROUPS_MAX,
        description="Nodes with work of their own that begin together, in place of `stages` and"
        " `nodes`; default none.",
    )
    primary: tuple[Name, ...] = Field(
        default=(),
        description="Groups whose success ends the others and the run; default: the first.",
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

    @field_validator("stages", "groups")
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
        names = [part.name for part in self.named_parts]
        for part in self.named_parts:
            self._is_fit(part)
        self._has_fit_groups(names)
        sizes = [self.nodes, *(part.nodes for part in self.named_parts if part.nodes)]
        if self.rdma and all(nodes.max == 1 for nodes in sizes):
            raise ValueError("`rdma` joins several nodes, and `nodes` is 1")
        for at in range(self.count()):
            template = self.template_of(at)
            where = f"{self.noun} `{names[at]}`" if names else "the template"
            if template.work is None and self.params_from is None:
                raise ValueError(f"{where} needs exactly one of `python`, `command` and `script`")
            self._is_fit_for_ray(template, f"{self.noun} `{names[at]}`" if names else "the run")
        return self

    def _has_fit_groups(self, names: Sequence[str]) -> None:
        """Checks the fields beside `groups`. Raises ValueError for one that cannot go with them."""
        if not self.groups:
            if self.primary:
                raise ValueError("`primary` names groups, and there are no `groups`")
            return
        rules = (
            (bool(self.stages), "`stages`", "write a TrainingRun for each, joined by `dependsOn`"),
            (self.nodes != ONE, "`nodes`", "give each group its own `nodes`"),
            (
                self.parallelism is not None and self.parallelism < len(self.groups),
                f"`parallelism: {self.parallelism}`",
                "leave it out: all groups begin together",
            ),
            (self.template.is_function, "`runtime: function`", "groups run in sandboxes"),
            (self.sandbox.reuse != 1, "`sandbox.reuse`", "leave it out: nodes end with an attempt"),
        )
        for fails, field, fix in rules:
            if fails:
                raise ValueError(f"{field} cannot be had beside `groups`; {fix}")
        placements = (self.placement_of(at) for at in range(self.count()))
        places = {it.provider for placement in placements for it in placement.candidates}
        if len(places) > 1:
            named = " and ".join(f"`{it}`" for it in sorted(places))
            raise ValueError(f"`groups` reach each other on one provider, and {named} are named")
        for name in self.primary:
            if name not in names:
                known = ", ".join(f"`{it}`" for it in names)
                raise ValueError(f"`primary` names `{name}`, which is no group; there are {known}")

    @property
    def named_parts(self) -> Sequence[Stage]:
        """Its groups, or its stages; empty where the template is all of its work."""
        return self.groups or self.stages

    @property
    def noun(self) -> str:
        """The word for one of its units, for users."""
        return "group" if self.groups else "stage"

    @property
    def primaries(self) -> tuple[str, ...]:
        """The names of the groups whose success is that of the run."""
        return self.primary or tuple(it.name for it in self.groups[:1])

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
                message = f"`{name}` of {self.noun} `{stage.name}` belongs to function/{function}"
                raise ValueError(f"{message}; give it there")
        if stage.image is not None and stage.image.requirements is not None:
            message = f"`image.requirements` of {self.noun} `{stage.name}` is read of the template"
            raise ValueError(f"{message} alone; list its lines in `pip`")
        gpu = stage.resources.gpu if stage.resources is not None else None
        if gpu is not None and gpu.otherwise and not self.template.is_function:
            message = f"{self.noun} `{stage.name}` lists GPUs, which goes with `runtime: function`"
            raise ValueError(f"{message}; name one sort")

    def count(self) -> int:
        """Returns the number of stages or groups; at least 1."""
        return len(self.named_parts) or 1

    def template_of(self, at: int) -> Template:
        """Returns the template of the stage or group at position `at` of its list, from 0."""
        nodes = self.nodes
        ray = self.ray
        if not self.named_parts:
            return self._joined(self.template, nodes, ray)
        stage = self.named_parts[at]
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
            grouped=bool(self.groups),
        )

    def placement_of(self, at: int) -> PlacementSpec:
        """Returns the placement of the stage or group at position `at`."""
        own = self.named_parts[at].placement if self.named_parts else None
        if own is not None:
            return own
        return self.placement

    def parts(self) -> Iterator[WorkPart]:
        """Yields the template, if some stage leaves it unchanged, and each stage with work of its
        own.
        """
        named = self.named_parts
        if not named or not all(part.work_fields() for part in named):
            template = self._joined(self.template, self.nodes, self.ray)
            yield WorkPart(("template",), template, self.placement)
        for at, part in enumerate(named):
            if own := part.work_fields():
                path = (f"{self.noun}s", at)
                yield WorkPart(path, self.template_of(at), self.placement_of(at), own)
