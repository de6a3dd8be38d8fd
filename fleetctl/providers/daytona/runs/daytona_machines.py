"""Translates resources into a Daytona sandbox: whole cores and GiB, and its sorts of GPU. Pure.

Called before an image is built: a snapshot has the size of its sandboxes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fleetctl.common.errors import Refused
from fleetctl.specs.blocks.resources import Gpu, Resources

GIB = 1024**3
# As the SDK's own list had them in 0.226.1.
GPUS = ("H100", "H200", "B200", "B300", "RTX-PRO-6000", "RTX-4090", "RTX-5090", "MI355X")


@dataclass(frozen=True, slots=True)
class DaytonaMachine:
    """The size of a snapshot; None leaves a field to Daytona. Memory and disk in GiB."""

    cpu: int | None = None
    memory: int | None = None
    disk: int | None = None
    gpu: int | None = None
    gpu_type: str | None = None  # None with a GPU: any
    rounded: tuple[str, ...] = ()  # resources that were not whole numbers, for messages

    @property
    def note(self) -> str:
        """Returns a note for the user; "" when all numbers were whole."""
        if self.rounded:
            return f"rounded up: {', '.join(self.rounded)}"
        return ""


def choose_machine(resources: Resources) -> DaytonaMachine:
    """Returns the machine for the resources, rounded up to sizes of Daytona. Raises Refused for a
    GPU that Daytona does not have.
    """
    cpu = resources.cpu
    memory = resources.memory
    disk = resources.disk
    parts: list[str] = []
    return DaytonaMachine(
        cpu=None if cpu is None else _round_up("cpu", cpu, "", parts),
        memory=None if memory is None else _round_up("memory", memory / GIB, " GiB", parts),
        disk=None if disk is None else _round_up("disk", disk / GIB, " GiB", parts),
        gpu=None if resources.gpu is None else resources.gpu.count,
        gpu_type=None if resources.gpu is None else _gpu_name(resources.gpu),
        rounded=tuple(parts),
    )


def billed_resources(resources: Resources) -> Resources:
    """Returns the resources that are paid for: the whole machine."""
    made = choose_machine(resources.model_copy(update={"gpu": None}))
    return resources.model_copy(
        update={
            "cpu": None if made.cpu is None else float(made.cpu),
            "memory": None if made.memory is None else made.memory * GIB,
            "disk": None if made.disk is None else made.disk * GIB,
        }
    )


def _round_up(
    name: str,
    asked: float,
    unit: str,
    lines: list[str],
) -> int:
    whole = max(1, math.ceil(asked))
    if whole != asked:
        lines.append(f"{name} {asked:.3g} to {whole}{unit}")
    return whole


def _gpu_name(wanted: Gpu) -> str | None:
    if wanted.name.lower() == "any":
        return None
    name = wanted.name.upper()
    if name not in GPUS:
        raise Refused(
            f"resources.gpu is `{wanted.name}`, which Daytona does not have",
            # A name that looks alike may be of a machine at ten times the price.
            hint=f"it has {', '.join(GPUS)}",
        )
    return name
