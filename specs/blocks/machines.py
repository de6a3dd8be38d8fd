"""Settings for machines of people's own: `ssh` of Provider objects.

Read by provider `ssh`. Names of files with keys alone; no key.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from fleetctl.specs.values.scalars import (
    Count,
    NonEmptyText,
    PositiveCount,
    PositiveDuration,
    SandboxPath,
    Spec,
)

HOSTS_MAX = 256
PORT_MAX = 65_535
LEASE_S = 86_400.0
ROOT = "~/.fleetctl"
# What OpenSSH could take for an option, or a shell for more than a word.
_WORD = re.compile(r"[A-Za-z0-9_.:%@\[\]][A-Za-z0-9_.:%@\[\],-]*")
_HOME_PATH = re.compile(r"(?:~/|/)[^\0\n]*")


def _is_word(value: str) -> str:
    if not _WORD.fullmatch(value):
        raise ValueError("it must be a name or address, without spaces, that begins with no `-`")
    return value


def _is_path(value: str) -> str:
    if not _HOME_PATH.fullmatch(value) or ".." in value.split("/"):
        raise ValueError("it must be an absolute path, or one that begins with `~/`")
    return value


HostWord = Annotated[NonEmptyText, AfterValidator(_is_word)]
HostPath = Annotated[NonEmptyText, AfterValidator(_is_path)]
Port = Annotated[PositiveCount, Field(le=PORT_MAX)]


class ContainerSettings(Spec):
    """The program that runs images of a registry on machines, and its options."""

    command: Annotated[tuple[NonEmptyText, ...], Field(max_length=50)] = Field(
        default=(),
        description="Words that begin its commands, such as `[podman, --log-level=error]`; default:"
        " what is there.",
    )
    args: Annotated[tuple[NonEmptyText, ...], Field(max_length=50)] = Field(
        default=(), description="Further options of its `run`, such as `--pids-limit=0`."
    )


class SshHost(Spec):
    """A machine that takes work over SSH; a text is the same as its `host` alone."""

    host: HostWord = Field(description="Name or address, or a `Host` of the SSH configuration.")
    user: HostWord | None = Field(
        default=None, description="User to log in as; default: that of the SSH configuration."
    )
    port: Port | None = Field(
        default=None, description="Port of its SSH server; default: that of the configuration."
    )
    identity_file: HostPath | None = Field(
        default=None,
        description="File with the key on the controller's machine; default: the agent's keys and"
        " the usual files.",
    )
    jump: HostWord | None = Field(
        default=None, description="Host to connect through, as `ssh -J` reads it; default none."
    )
    slots: PositiveCount | None = Field(
        default=None, description="Tasks at the same time; default: one for each core."
    )
    gpus: Literal["auto"] | Count = Field(
        default="auto", description="GPUs that tasks may have, by index; default: all it has."
    )
    python: HostPath | None = Field(
        default=None, description="Python 3.9 or later on it; default `python3`."
    )
    directory: HostPath = Field(
        default=ROOT, description=f"Directory of all that fleetctl keeps on it; default {ROOT}."
    )
    interface: HostWord | None = Field(
        default=None,
        description="Network that leads to the other hosts, for `nodes`; default: that of SSH.",
    )
    shared: SandboxPath | None = Field(
        default=None,
        description="Directory that holds the volumes, such as a shared mount; default: its own.",
    )

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"host": value}
        return value

    @property
    def name(self) -> str:
        """Its name in handles and messages."""
        return self.host if self.port is None else f"{self.host}:{self.port}"


class SshSettings(Spec):
    """Machines that are reached by OpenSSH's own client."""

    hosts: tuple[SshHost, ...] = Field(
        min_length=1, max_length=HOSTS_MAX, description="The machines, most wanted first."
    )
    config: HostPath | None = Field(
        default=None, description="SSH configuration to use; default: the usual files."
    )
    lease: PositiveDuration = Field(
        default=LEASE_S,
        description="Seconds or `2h` that work goes on without a controller; default 24h.",
    )
    container: ContainerSettings = Field(
        default=ContainerSettings(),
        description="How `image.registry` is run; default: podman or docker, as it is installed.",
    )

    @field_validator("hosts")
    @classmethod
    def _are_apart(cls, value: tuple[SshHost, ...]) -> tuple[SshHost, ...]:
        for name, times in Counter(it.name for it in value).items():
            if times > 1:
                raise ValueError(f"host `{name}` is listed twice")
        return value


class SlurmSettings(Spec):
    """A Slurm cluster, and the directory that its login and its nodes share."""

    shared_dir: HostPath = Field(
        description="Directory that the login and all nodes see, for journals, code and volumes."
    )
    login: SshHost | None = Field(
        default=None, description="Host with Slurm's commands; default: this machine has them."
    )
    config: HostPath | None = Field(
        default=None, description="SSH configuration to use; default: the usual files."
    )
    partition: NonEmptyText | None = Field(
        default=None, description="Partition of its jobs; default: the cluster's."
    )
    account: NonEmptyText | None = Field(
        default=None, description="Account of its jobs; default: the user's."
    )
    qos: NonEmptyText | None = Field(
        default=None, description="Quality of service of its jobs; default: the account's."
    )
    constraint: NonEmptyText | None = Field(
        default=None, description="Features of nodes, as `sbatch --constraint`; default: any."
    )
    interface: HostWord | None = Field(
        default=None,
        description="Network that joins the nodes, such as `ib0`; default: that of their names.",
    )
    options: Annotated[tuple[NonEmptyText, ...], Field(max_length=50)] = Field(
        default=(), description="Further options of `sbatch`, such as `--nice=10`; default none."
    )
    time_limit: PositiveDuration = Field(
        default=LEASE_S,
        description="Seconds or `2h` of a job whose task names no `timeoutSeconds`; default 24h.",
    )
    container: ContainerSettings = Field(
        default=ContainerSettings(),
        description="How `image.registry` is run; default: podman or docker, as it is installed.",
    )
