"""The resources of a sandbox: cores, memory, disk and GPUs, and the hosts that it may reach.

So a model's code is run safely.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from typing import Any

from pydantic import Field, field_validator, model_serializer, model_validator

from fleetctl.specs.values.scalars import Cpu, NonEmptyText, PositiveCount, Size, Spec

GPUS_MAX = 8  # alternatives that one template may list

_GPU = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9_.-]{0,62}[!+]?)(?::(?P<count>[0-9]{1,4}))?")
GPU_FORM = "a text such as `A100:4`, `A100` for one, or `any:1`"

ALLOWED_MAX = 10  # as many as Daytona takes
_HOST = re.compile(r"(\*\.)?([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,63}")


class Gpu(Spec):
    """A number of GPUs of one model, written `NAME:COUNT`; or a list of alternatives, best
    first.
    """

    name: NonEmptyText = Field(description="Model such as `A100`, or `any`.")
    count: PositiveCount = Field(default=1, description="Number of GPUs; default 1.")
    otherwise: tuple[Gpu, ...] = Field(
        default=(),
        max_length=GPUS_MAX,
        description="GPUs that will do as well, best first.",
    )

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return _first_and_others(value)
        if not isinstance(value, str):
            if isinstance(value, dict | cls):
                return value
            raise ValueError(f"it must be {GPU_FORM}")
        match = _GPU.fullmatch(value)
        if match is None or match["count"] == "0":
            raise ValueError(f"it must be {GPU_FORM}")
        return {"name": match["name"], "count": int(match["count"] or 1)}

    @model_serializer
    def _to_text(self) -> str | list[str]:
        texts = [str(it) for it in self.choices]
        if self.otherwise:
            return texts
        return texts[0]

    @property
    def choices(self) -> tuple[Gpu, ...]:
        """Returns this and its alternatives, best first."""
        return (self, *self.otherwise)

    @property
    def each(self) -> tuple[Gpu, ...]:
        """Returns this and its alternatives, best first, each without alternatives of its own."""
        return tuple(it.model_copy(update={"otherwise": ()}) for it in self.choices)

    def __str__(self) -> str:
        return f"{self.name}:{self.count}"


def _first_and_others(value: Sequence[Any]) -> Any:
    if not value or not all(isinstance(it, str) for it in value):
        raise ValueError(f"each entry of a list must be {GPU_FORM}")
    first, *others = (Gpu.model_validate(it) for it in value)
    return {"name": first.name, "count": first.count, "otherwise": tuple(others)}


class Resources(Spec):
    """Limits of one sandbox."""

    cpu: Cpu | None = Field(
        default=None, description="Cores; `500m` is half a core; default: no limit."
    )
    memory: Size | None = Field(default=None, description="Bytes or `4Gi`; default: no limit.")
    disk: Size | None = Field(default=None, description="Bytes or `50Gi`; default: no limit.")
    gpu: Gpu | None = Field(
        default=None,
        description="`NAME:COUNT` such as `A100:4`; for `runtime: function` also a list, best"
        " first; default none.",
    )


def is_block(entry: str) -> bool:
    """Returns True if an entry is a block of addresses, not a host."""
    try:
        ipaddress.ip_network(entry)
    except ValueError:
        return False
    return True


class Network(Spec):
    """Where a sandbox may connect to; what comes in over its provider's own line goes on."""

    allow: tuple[NonEmptyText, ...] = Field(
        default=(),
        max_length=ALLOWED_MAX,
        description="Blocks such as `10.0.0.0/8`, and hosts such as `pkg.example.org`; default:"
        " nothing.",
    )

    @field_validator("allow")
    @classmethod
    def _are_blocks_and_hosts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for entry in value:
            if not is_block(entry) and not _HOST.fullmatch(entry):
                right = (
                    "a block such as `10.0.0.0/8`, or a host such as `pkg.example.org` or"
                    " `*.pkg.example.org`"
                )
                raise ValueError(f"`{entry}` is not {right}")
        return value

    @property
    def blocks(self) -> list[str]:
        return [entry for entry in self.allow if is_block(entry)]

    @property
    def hosts(self) -> list[str]:
        return [entry for entry in self.allow if not is_block(entry)]
