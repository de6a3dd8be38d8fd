"""Translates a template's resources into the SDK's arguments for a sandbox, and decides how many
machines an attempt has at Modal. Pure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fleetctl.common.errors import Refused
from fleetctl.specs.blocks.nodes import nodes_of
from fleetctl.specs.blocks.resources import Gpu, Resources
from fleetctl.specs.blocks.template import Template

# Sorts of GPU and how many a container can have, as Modal's guide to GPUs listed them in 2026-10.
GPUS = {
    "T4": 8,
    "L4": 8,
    "A10": 4,
    "A10G": 4,  # an older name of the same
    "L40S": 8,
    "A100": 8,
    "A100-40GB": 8,
    "A100-80GB": 8,
    "RTX-PRO-6000": 8,
    "H100": 8,
    "H100!": 8,  # never upgraded to an H200
    "H200": 8,
    "B200": 8,
    "B200+": 8,
    "B300": 8,
}
ANY_GPU = "T4"  # what `any` means here: the cheapest
CPU_MIN_CORES = 0.125  # the least that is billed
MIB = 1024**2
DISK_BYTES_MAX = 512 * 1024**3  # every sandbox has this much; more cannot be asked for

NODES_MAX, GPUS_MAX = 32, 256  # for one cluster


@dataclass(frozen=True, slots=True)
class ModalMachine:
    """Arguments of `Sandbox.create`; None leaves it to Modal."""

    cpu: tuple[float, float] | None  # physical cores: request and limit
    memory: tuple[int, int] | None  # MiB: request and limit
    gpu: str | None


def choose_machine(resources: Resources) -> ModalMachine:
    """Returns the machine for the resources. Raises Refused where Modal has none."""
    if resources.disk is not None and resources.disk > DISK_BYTES_MAX:
        raise Refused(
            f"resources.disk is {resources.disk / 1024**3:.0f} GiB; a sandbox on Modal has 512 GiB",
            hint="keep the data on a volume",
        )
    cpu = resources.cpu
    memory = resources.memory
    cores = None if cpu is None else max(CPU_MIN_CORES, cpu)
    mib = None if memory is None else max(1, math.ceil(memory / MIB))
    return ModalMachine(
        cpu=None if cores is None else (cores, cores),
        memory=None if mib is None else (mib, mib),
        gpu=None if resources.gpu is None else gpu_name(resources.gpu),
    )


def gpu_name(wanted: Gpu) -> str:
    """`A100:4`, in the SDK's spelling. Raises Refused with the sorts that there are."""
    name = ANY_GPU if wanted.name.lower() == "any" else wanted.name.upper()
    most = GPUS.get(name)
    if most is None:
        raise Refused(
            f"resources.gpu is `{wanted.name}`, which Modal does not have",
            # A name that looks alike may be of a machine at ten times the price.
            hint=f"it has {', '.join(GPUS)}",
        )
    if wanted.count > most:
        raise Refused(
            f"resources.gpu asks for {wanted.count} x {name}; Modal gives a sandbox at most {most}",
            hint=f"ask for `{name}:{most}` or fewer",
        )
    return f"{name}:{wanted.count}"


def cluster_size(template: Template) -> int:
    """Nodes of an attempt: of elastic ones the most that Modal joins. 1 needs no cluster."""
    nodes = nodes_of(template)
    return max(nodes.min, min(nodes.max, _most_machines(template)))


def check_cluster(template: Template) -> None:
    """Raises Refused for a cluster that Modal does not make."""
    wanted = cluster_size(template)
    gpu = template.resources.gpu
    if wanted <= _most_machines(template):
        return
    if gpu is None:
        raise Refused(
            f"nodes is {nodes_of(template)}, and Modal joins machines with GPUs alone",
            hint='ask for all GPUs of a host: `resources: {gpu: "H100:8"}`',
        )
    name, whole = _host_gpus(template)
    if gpu.count != whole:
        raise Refused(
            f"resources.gpu is `{gpu}`; where nodes work together Modal gives whole hosts,"
            f" which have {whole} x {name}",
            hint=f'ask for `gpu: "{name}:{whole}"`',
        )
    raise Refused(
        f"nodes is {nodes_of(template)}; Modal joins at most {NODES_MAX} machines and"
        f" {GPUS_MAX} GPUs, which is {_most_machines(template)} x {name}:{whole}",
        hint=f"use `nodes: {_most_machines(template)}` or fewer",
    )


def _most_machines(template: Template) -> int:
    """Returns how many machines can be joined; 1 where they cannot be joined."""
    gpu = template.resources.gpu
    if gpu is None:
        return 1
    try:
        _, whole = _host_gpus(template)
    except Refused:
        return 1
    if gpu.count == whole:
        return min(NODES_MAX, GPUS_MAX // whole)
    return 1


def _host_gpus(template: Template) -> tuple[str, int]:
    """Returns (sort, how many a host has). Raises Refused for a sort that Modal does not have."""
    gpu = template.resources.gpu
    assert gpu is not None
    name = gpu_name(gpu).partition(":")[0]
    return name, GPUS[name]
