"""The block of programs that run beside the work, in its sandbox or in the container of a function:
a model server, a database.

Read by providers through the template, and by `describe`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from fleetctl.specs.values.scalars import (
    Cpu,
    EnvName,
    Name,
    NonEmptyText,
    PositiveDuration,
    Size,
    Spec,
    Text,
    env_of,
)

SERVICES_MAX = 8  # beside one work; more is a cluster of its own
AUTO = "auto"
READY_S = 120.0
ASK_EVERY_S = 0.5

PORT_MAX = 65535
_WHOLE = {"gpu": "GPU", "disk": "disk"}


def _check_port(value: Any) -> int | str:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not (value == AUTO or (whole and 1 <= value <= PORT_MAX)):
        raise ValueError("it must be a number from 1 to 65535, without quotes, or `auto`")
    port: int | str = value
    return port


Port = Annotated[
    int | str,
    BeforeValidator(_check_port),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 1, "maximum": PORT_MAX}, {"const": AUTO}]}
    ),
]


class ReadinessCheck(Spec):
    """The check that a service is ready: exactly one of `http`, `tcp` and `command`."""

    http: NonEmptyText | None = Field(
        default=None, description="Path that answers with status 200 to 399, such as `/health`."
    )
    port: Port | None = Field(
        default=None,
        description="Port of `http`; `auto` is a free one, in `FLEETCTL_PORT_<NAME>`.",
    )
    tcp: Port | None = Field(
        default=None, description="Port that takes connections; `auto` as of `port`."
    )
    command: tuple[Text, ...] | None = Field(
        default=None,
        min_length=1,
        description="Program that exits with code 0.",
    )
    timeout_seconds: PositiveDuration = Field(
        default=READY_S, description="Seconds or `5m` until it must be ready; default 120."
    )
    interval_seconds: PositiveDuration = Field(
        default=ASK_EVERY_S,
        description="Seconds between two checks, fewer at first; default 0.5.",
    )

    @field_validator("http")
    @classmethod
    def _is_a_path(cls, value: str | None) -> str | None:
        if value is not None and (not value.startswith("/") or not value.isprintable()):
            raise ValueError("it must be a path that begins with `/`, such as `/health`")
        if value is not None and " " in value:
            raise ValueError("a path holds no space; write `%20`")
        return value

    @model_validator(mode="after")
    def _require_one_check(self) -> ReadinessCheck:
        given = [it for it in ("http", "tcp", "command") if getattr(self, it) is not None]
        if len(given) != 1:
            raise ValueError("`ready` needs exactly one of `http`, `tcp` and `command`")
        if self.http is not None and self.port is None:
            raise ValueError(
                f"`http` needs the port: `ready: {{http: {self.http}, port: 8000}}`, or `port:"
                " auto` for a free one"
            )
        if self.port is not None and self.http is None:
            raise ValueError("`port` goes with `http`; of a connection alone write `tcp: PORT`")
        return self

    @property
    def listens(self) -> Port | None:
        """Returns the port to which the probe connects."""
        if self.http is not None:
            return self.port
        return self.tcp

    def order(self) -> dict[str, Any]:
        """Returns the probe as the guest reads it; see guest/supervision/services/process.py."""
        made: dict[str, Any] = {
            "timeout_s": self.timeout_seconds,
            "every_s": self.interval_seconds,
        }
        if self.command is not None:
            return {**made, "argv": list(self.command)}
        port = self.listens
        return {**made, "port": 0 if port == AUTO else port, "path": self.http}

    def __str__(self) -> str:
        if self.command is not None:
            return f"`{' '.join(self.command)}`"
        port = "a free port" if self.listens == AUTO else f"port {self.listens}"
        if self.http is not None:
            return f"{self.http} at {port}"
        return port


class ServiceResources(Spec):
    """Resources of a service in the sandbox, beside those of the work."""

    cpu: Cpu | None = Field(default=None, description="Cores; `500m` is half a core.")
    memory: Size | None = Field(default=None, description="Bytes or `4Gi`.")

    @model_validator(mode="before")
    @classmethod
    def _shares_what_is_one(cls, value: Any) -> Any:
        for name in ("gpu", "disk") if isinstance(value, dict) else ():
            if name in value:
                raise ValueError(
                    f"the {_WHOLE[name]} of a sandbox is there for all in it; ask for"
                    f" `{name}` in `template.resources`"
                )
        return value


class ServiceSpec(Spec):
    """A program beside the work, in its sandbox: exactly one of `command` and `script`."""

    name: Name = Field(description="Unique among the services.")
    command: tuple[Text, ...] | None = Field(
        default=None,
        min_length=1,
        description="A program and its arguments; no shell reads it.",
    )
    script: NonEmptyText | None = Field(default=None, description="Text that a POSIX shell runs.")
    env: dict[EnvName, Text] = Field(
        default_factory=dict, description="Variables added to the template's; default none."
    )
    ready: ReadinessCheck | None = Field(
        default=None, description="When the work may begin; default: as soon as it is started."
    )
    resources: ServiceResources | None = Field(
        default=None,
        description="`cpu` and `memory` that the sandbox has beside `template.resources`; default"
        " none.",
    )
    on_exit: Literal["Fail", "Restart", "Ignore"] = Field(
        default="Fail",
        description="Effect of its end while the work runs; default Fail, of the attempt.",
    )

    @field_validator("env", mode="before")
    @classmethod
    def _env_from_list(cls, value: Any) -> Any:
        return env_of(value)

    @model_validator(mode="after")
    def _has_one_program(self) -> ServiceSpec:
        if (self.command is None) == (self.script is None):
            raise ValueError("a service needs exactly one of `command` and `script`")
        return self

    def order(self) -> dict[str, Any]:
        """Returns the service as the guest reads it; see guest/supervision/services/process.py."""
        command = self.command
        argv = list(command) if command is not None else ["/bin/sh", "-c", self.script]
        return {
            "name": self.name,
            "argv": argv,
            "env": dict(self.env),
            "ready": self.ready.order() if self.ready is not None else None,
            "on_exit": self.on_exit,
        }


def _are_apart(value: tuple[ServiceSpec, ...]) -> tuple[ServiceSpec, ...]:
    names = [it.name for it in value]
    for at, name in enumerate(names):
        if (first := names.index(name)) != at:
            both = f"[{first}] and [{at}] are both called `{name}`"
            raise ValueError(f"{both}; each must have its own name")
    asked = [it.ready.listens for it in value if it.ready is not None]
    ports = [port for port in asked if isinstance(port, int)]
    if len(set(ports)) < len(ports):
        twice = next(port for port in ports if ports.count(port) > 1)
        raise ValueError(f"two services would listen at port {twice}; each needs its own")
    return value


Services = Annotated[
    tuple[ServiceSpec, ...],
    Field(
        max_length=SERVICES_MAX,
        description="Programs beside the work, ready before it begins and ended after it;"
        " default none.",
    ),
    AfterValidator(_are_apart),
]
