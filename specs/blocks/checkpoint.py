"""The directory in which a TrainingRun keeps its progress, and the time after which it counts as
hung.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from fleetctl.specs.values.scalars import (
    Duration,
    PositiveCount,
    PositiveDuration,
    SandboxPath,
    Spec,
    Text,
)

_RESUME = re.compile(r"Latest|None|step:[0-9]{1,12}")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]{0,31}")
PLACEHOLDER = "${checkpoint}"

CheckpointFormat = Literal[
    "auto", "huggingface", "lightning", "dcp", "orbax", "deepspeed", "megatron", "skyrl",
    "ray-train", "fleetctl", "none",
]  # fmt: skip


def _check_resume(value: str) -> str:
    if not _RESUME.fullmatch(value):
        raise ValueError("it must be `Latest`, `None` or `step:N`")
    return value


Resume = Annotated[
    str,
    AfterValidator(_check_resume),
    WithJsonSchema({"type": "string", "pattern": f"^({_RESUME.pattern})$"}),
]


def name_it(arguments: tuple[str, ...]) -> None:
    """Checks that `resumeArgs` has the path of the checkpoint in it; raises ValueError."""
    if arguments and not any(PLACEHOLDER in one for one in arguments):
        raise ValueError(f"`resumeArgs` must have `{PLACEHOLDER}` in one of its arguments")


def _mirror_url(value: str) -> str:
    scheme, separator, rest = value.partition("://")
    if not separator or not _SCHEME.fullmatch(scheme) or not rest.strip("/"):
        raise ValueError("it must be a URL such as `s3://bucket/prefix` or `file:///mnt/copies`")
    if "@" in rest.partition("/")[0] or "?" in rest:
        raise ValueError("it must hold no user, password or token; give those through a Secret")
    return value.rstrip("/")


MirrorUrl = Annotated[
    str,
    AfterValidator(_mirror_url),
    WithJsonSchema({"type": "string", "pattern": "^[a-z0-9+.-]+://"}),
]


class KeepCheckpoints(Spec):
    """The complete checkpoints that stay; the one that an attempt began from always does."""

    last: PositiveCount = Field(description="Number of newest ones that stay.")
    every: PositiveCount | None = Field(
        default=None, description="Also those whose step is a multiple of this; default none."
    )


class Checkpoint(Spec):
    """Keeps progress on a volume, so that a restart goes on from there."""

    path: SandboxPath = Field(description="Absolute directory inside the sandbox, on a volume.")
    format: CheckpointFormat = Field(
        default="auto",
        description="Library that writes them, or none; default auto: the first with a complete"
        " one.",
    )
    resume: Resume = Field(
        default="Latest", description="`Latest`, `None` or `step:N`; default Latest."
    )
    resume_args: tuple[Text, ...] = Field(
        default=(),
        description="Added to `command` if it resumes; `${checkpoint}` is the path; default none.",
    )
    keep: KeepCheckpoints | None = Field(
        default=None, description="Which checkpoints stay; default: all that are written."
    )
    verify: Literal["Fast", "Full"] = Field(
        default="Fast",
        description="Hashes that a start checks: of files up to 64 MiB, or of all; default Fast.",
    )
    mirror: MirrorUrl | None = Field(
        default=None,
        description="URL such as `s3://bucket/prefix`, to which each complete checkpoint is"
        " copied; default none.",
    )
    signal_before_stop_seconds: Duration = Field(
        default=0.0,
        description="Seconds to save between the request to end and the kill; default 0.",
    )

    @model_validator(mode="after")
    def _arguments_name_it(self) -> Checkpoint:
        name_it(self.resume_args)
        return self


class ProgressDeadline(Spec):
    """The time after which an attempt without anything new counts as hung."""

    timeout_seconds: PositiveDuration = Field(
        description="Longest time without a new step, checkpoint or line of its output."
    )
    start_seconds: PositiveDuration = Field(
        default=3600.0, description="Longest time until the first step or checkpoint; default 1h."
    )
