"""TrainingRun: one long job, in stages, that resumes from its checkpoint."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator, model_validator

from fleetctl.specs.blocks.checkpoint import Checkpoint, Progress
from fleetctl.specs.blocks.common import Execution, ParamsFrom
from fleetctl.specs.blocks.template import WORK_FIELDS, Template
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
)

STAGE = "stage"  # the parameter that names the stage that is on


class Stage(Spec):
    """One step of a run; what it leaves out it takes from the template."""

    name: Name = Field(description="Unique among the stages.")
    python: NonEmptyText | None = Field(
        default=None, description="Python source in place of the template's."
    )
    command: tuple[Text, ...] | None = Field(
        default=None, min_length=1, description="Program and arguments in place of the template's."
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

    @field_validator("env", mode="before")
    @classmethod
    def _env_from_list(cls, value: Any) -> Any:
        return Template.model_validate({"env": value}).env if isinstance(value, list) else value

    @model_validator(mode="after")
    def _has_one_work(self) -> Stage:
        if sum(getattr(self, name) is not None for name in WORK_FIELDS) > 1:
            raise ValueError("a stage takes at most one of `python`, `command` and `script`")
        return self

    def applied_to(self, template: Template) -> Template:
        """The template that this stage runs."""
        changes: dict[str, Any] = {}
        if any(getattr(self, name) is not None for name in WORK_FIELDS):
            changes = {name: getattr(self, name) for name in WORK_FIELDS}
        if self.env:
            changes["env"] = {**template.env, **self.env}
        if self.timeout_seconds is not None:
            changes["timeout_seconds"] = self.timeout_seconds
        return template.model_copy(update=changes)


class TrainingRunSpec(Execution):
    """One long job; its units are its stages, one after the other."""

    template: Template = Field(description="What each stage runs unless it says otherwise.")
    nodes: PositiveCount = Field(default=1, description="Machines that work together; default 1.")
    ray: Bool = Field(
        default=False, description="Whether a Ray cluster joins the nodes; default false."
    )
    stages: tuple[Stage, ...] = Field(
        default=(), max_length=1000, description="Steps in order; default: the template alone."
    )
    checkpoint: Checkpoint | None = Field(
        default=None, description="Where progress is kept; default: a restart begins anew."
    )
    params_from: ParamsFrom | None = Field(
        default=None, description="Parameters of all stages, from a sweep's best trial."
    )
    max_restarts: Count = Field(
        default=0,
        description="Failures of one stage since its last new checkpoint that are restarted;"
        " default 0.",
    )
    progress: Progress | None = Field(
        default=None, description="When an attempt counts as hung; default: never."
    )

    @model_validator(mode="after")
    def _is_complete(self) -> TrainingRunSpec:
        names = [stage.name for stage in self.stages]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two stages have the name `{name}`; each must have its own")
        for index in range(self.count()):
            if self.template_of(index).work is None:
                where = f"stage `{names[index]}`" if names else "the template"
                raise ValueError(f"{where} needs exactly one of `python`, `command` and `script`")
        return self

    def count(self) -> int:
        """Number of stages; at least 1."""
        return len(self.stages) or 1

    def template_of(self, index: int) -> Template:
        """The template of stage `index`, from 0."""
        return self.stages[index].applied_to(self.template) if self.stages else self.template
