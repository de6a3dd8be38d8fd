"""Function: containers that stay warm between the tasks that call them, or, with a `port`, that
answer HTTP for an Endpoint and are there only while it is called.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator
from pydantic.alias_generators import to_camel

from fleetctl.specs.blocks.resources import Resources
from fleetctl.specs.blocks.services import PORT_MAX
from fleetctl.specs.blocks.template import (
    Image,
    SecretNames,
    Source,
    Template,
    VolumeMounts,
    check_requirements,
)
from fleetctl.specs.builtin import DEFAULT_PROVIDER
from fleetctl.specs.values.scalars import (
    Count,
    Duration,
    EnvName,
    Int,
    Name,
    NonEmptyText,
    PositiveCount,
    Spec,
    Text,
)

SCALEDOWN_S = 60.0  # how long an idle container waits for a next task
SCALEDOWN_S_MIN, SCALEDOWN_S_MAX = 2.0, 3600.0  # the range of Modal
STARTUP_S = 600.0  # for a container to load a model
STARTUP_S_MAX = 3600.0
REQUESTS, REQUESTS_MAX = 32, 1000  # at once in one container; Modal takes no more
# Fields that only a server has.
SERVERS_OWN = ("command", "ready", "startup_timeout_seconds", "concurrency")


class ServerReady(Spec):
    """The check that a container's server takes requests."""

    http: NonEmptyText = Field(
        description="Path that answers with status 200 to 399, such as `/health`."
    )

    @field_validator("http")
    @classmethod
    def _is_a_path(cls, value: str) -> str:
        if not value.startswith("/") or not value.isprintable() or " " in value:
            raise ValueError("it must be a path that begins with `/`, such as `/health`")
        return value


class FunctionSpec(Spec):
    """Image, code and machine of the tasks that name it in `template.function`. Its containers
    start when a task arrives, and end when none has arrived for a while; retries are the job's.
    """

    provider: Name = Field(
        default=DEFAULT_PROVIDER, description="Provider that keeps it ready; default `local`."
    )
    image: Image | None = Field(
        default=None,
        description="Packages to install, or a registry reference; default: the provider's own.",
    )
    source: Source | None = Field(
        default=None, description="Code to put into each container; default none."
    )
    resources: Resources = Field(
        default_factory=Resources,
        description="Limits of one container; `gpu` may be a list, best first.",
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
        default=None,
        description="Containers at the same time; default: the jobs' parallelism, with `port` 1.",
    )
    scaledown_seconds: Annotated[Duration, Field(ge=SCALEDOWN_S_MIN, le=SCALEDOWN_S_MAX)] = Field(
        default=SCALEDOWN_S,
        description="Seconds that an idle container waits for a task, 2 to 3600; default 60.",
    )
    port: Annotated[Int, Field(ge=1, le=PORT_MAX)] | None = Field(
        default=None,
        description="Port of `command`, which serves HTTP: an Endpoint calls it, and no task does.",
    )
    command: tuple[Text, ...] | None = Field(
        default=None,
        min_length=1,
        description="Server that a container runs; with `port`.",
    )
    ready: ServerReady | None = Field(
        default=None, description="When it takes requests; default: once `port` takes connections."
    )
    startup_timeout_seconds: Annotated[Duration, Field(ge=1.0, le=STARTUP_S_MAX)] = Field(
        default=STARTUP_S,
        description="Seconds or `20m` in which a container must be ready, up to 1h; default 600.",
    )
    concurrency: Annotated[PositiveCount, Field(le=REQUESTS_MAX)] = Field(
        default=REQUESTS, description="Requests that one container takes at once; default 32."
    )

    @field_validator("env", mode="before")
    @classmethod
    def _env_from_list(cls, value: Any) -> Any:
        if isinstance(value, list):
            return Template.model_validate({"env": value}).env
        return value

    @model_validator(mode="after")
    def _has_its_requirements(self) -> FunctionSpec:
        check_requirements(self.image, self.source)
        return self

    @model_validator(mode="after")
    def _has_room(self) -> FunctionSpec:
        if self.max_containers is not None and self.max_containers < self.min_containers:
            raise ValueError("`maxContainers` must be at least `minContainers`")
        return self

    @model_validator(mode="after")
    def _serves_or_is_called(self) -> FunctionSpec:
        if self.port is not None and self.command is None:
            raise ValueError("`port` needs the `command` of the server that answers there")
        for name in SERVERS_OWN if self.port is None else ():
            if name in self.model_fields_set:
                said = to_camel(name)
                raise ValueError(f"`{said}` is of a server, and goes with `port`")
        return self

    def applied_to(self, template: Template) -> Template:
        """Returns the sandbox of a task of `template`; the template's additions to the environment
        win.
        """
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
