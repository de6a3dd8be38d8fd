"""What a sandbox on Daytona may use: whole cores and GiB, and its sorts of GPU. Pure.

Called before an image is built: a snapshot has the size of its sandboxes.
"""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass

from fleetctl.common.errors import Refused
from fleetctl.specs.blocks.resources import Gpu, Resources

GIB = 1024**3
# As the SDK's own list had them in 0.226.1.
GPUS = ("H100", "H200", "B200", "B300", "RTX-PRO-6000", "RTX-4090", "RTX-5090", "MI355X")


@dataclass(frozen=True, slots=True)
class Machine:
    """What a snapshot is made with; None leaves it to Daytona. Memory and disk in GiB."""

    cpu: int | None = None
    memory: int | None = None
    disk: int | None = None
    gpu: int | None = None
    gpu_type: str | None = None  # None with a GPU: any
    rounded: tuple[str, ...] = ()  # what was asked and is not whole, for people

    @property
    def note(self) -> str:
        """What a person should know; "" when nothing was rounded."""
        return f"rounded up: {', '.join(self.rounded)}" if self.rounded else ""


def machine(resources: Resources) -> Machine:
    """Raises Refused for a GPU that Daytona does not have."""
    cpu, memory, disk = resources.cpu, resources.memory, resources.disk
    parts: list[str] = []
    return Machine(
        cpu=None if cpu is None else _whole("cpu", cpu, "", parts),
        memory=None if memory is None else _whole("memory", memory / GIB, " GiB", parts),
        disk=None if disk is None else _whole("disk", disk / GIB, " GiB", parts),
        gpu=None if resources.gpu is None else resources.gpu.count,
        gpu_type=None if resources.gpu is None else _gpu(resources.gpu),
        rounded=tuple(parts),
    )


def billed(resources: Resources) -> Resources:
    """What is paid for: the whole machine."""
    made = machine(resources.model_copy(update={"gpu": None}))
    return resources.model_copy(
        update={
            "cpu": None if made.cpu is None else float(made.cpu),
            "memory": None if made.memory is None else made.memory * GIB,
            "disk": None if made.disk is None else made.disk * GIB,
        }
    )


def _whole(name: str, asked: float, unit: str, lines: list[str]) -> int:
    whole = max(1, math.ceil(asked))
    if whole != asked:
        lines.append(f"{name} {asked:.3g} to {whole}{unit}")
    return whole


def _gpu(wanted: Gpu) -> str | None:
    if wanted.name.lower() == "any":
        return None
    name = wanted.name.upper()
    if name not in GPUS:
        near = difflib.get_close_matches(name, GPUS, n=1)
        raise Refused(
            f"resources.gpu is `{wanted.name}`, which Daytona does not have",
            hint=(f"did you mean `{near[0]}`? " if near else "") + f"it has {', '.join(GPUS)}",
        )
    return name
