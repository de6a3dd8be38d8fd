"""Function: containers that stay warm between the tasks that call them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from fleetctl.specs.blocks.resources import Resources
from fleetctl.specs.blocks.template import (
    Image,
    SecretNames,
    Source,
    Template,
    VolumeMounts,
    check_requirements,
)
from fleetctl.specs.builtin import DEFAULT_PROVIDER
from fleetctl.specs.values.scalars import Count, Duration, EnvName, Name, PositiveCount, Spec, Text

SCALEDOWN_S = 60.0  # so long an idle container waits for a next task
SCALEDOWN_S_MIN, SCALEDOWN_S_MAX = 2.0, 3600.0  # what Modal takes


class FunctionSpec(Spec):
    """What the tasks have in common that name it in `template.function`. Its containers start when
    a task comes, and end when none came for a while; retries are the job's.
    """

    provider: Name = Field(
        default=DEFAULT_PROVIDER, description="Provider that keeps it ready; default `local`."
    )
    image: Image | None = Field(
        default=None,
        description="What to install, or a registry reference; default: the provider's own.",
    )
    source: Source | None = Field(
        default=None, description="Code to put into each container; default none."
    )
    resources: Resources = Field(
        default_factory=Resources,
        description="What one container may use; `gpu` may be a list, best first.",
    )
    env: dict[EnvName, Text] = Field(
        default_factory=dict,
        description="Environment variables; a template may add to them; default none.",
    )
    secrets: SecretNames = ()
    volumes: VolumeMounts = ()
    min_containers: Count = Field(
        default=0, description="Containers that stay, and cost, also when nothing runs; default 0."
    )
    max_containers: PositiveCount | None = Field(
        default=None, description="Containers at the same time; default: the jobs' parallelism."
    )
    scaledown_seconds: Annotated[Duration, Field(ge=SCALEDOWN_S_MIN, le=SCALEDOWN_S_MAX)] = Field(
        default=SCALEDOWN_S,
        description="Seconds that an idle container waits for a task, 2 to 3600; default 60.",
    )

    @field_validator("env", mode="before")
    @classmethod
    def _env_from_list(cls, value: Any) -> Any:
        return Template.model_validate({"env": value}).env if isinstance(value, list) else value

    @model_validator(mode="after")
    def _has_its_requirements(self) -> FunctionSpec:
        check_requirements(self.image, self.source)
        return self

    @model_validator(mode="after")
    def _has_room(self) -> FunctionSpec:
        if self.max_containers is not None and self.max_containers < self.min_containers:
            raise ValueError("`maxContainers` must be at least `minContainers`")
        return self

    def applied_to(self, template: Template) -> Template:
        """What a task of `template` runs in; what the template adds to the environment wins."""
        return template.model_copy(
            update={
                "runtime": "function",
                "image": self.image,
                "source": self.source,
                "resources": self.resources,
                "env": {**self.env, **template.env},
                "secrets": self.secrets,
                "volumes": self.volumes,
            }
        )
