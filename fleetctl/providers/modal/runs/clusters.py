"""How many machines an attempt has at Modal, and which it cannot have: the rules of its clustered
functions, as its SDK and guide tell them in 2026-10. Pure.
"""

from __future__ import annotations

from fleetctl.common.errors import Refused
from fleetctl.providers.modal.runs import machines
from fleetctl.specs.blocks.nodes import nodes_of
from fleetctl.specs.blocks.template import Template

NODES_MAX, GPUS_MAX = 32, 256  # of one cluster


def size(template: Template) -> int:
    """Nodes of an attempt: of elastic ones the most that Modal joins. 1 needs no cluster."""
    nodes = nodes_of(template)
    return max(nodes.min, min(nodes.max, _most(template)))


def check(template: Template) -> None:
    """Raises Refused for a cluster that Modal does not make."""
    wanted, gpu = size(template), template.resources.gpu
    if wanted <= _most(template):
        return
    if gpu is None:
        raise Refused(
            f"nodes is {nodes_of(template)}, and Modal joins machines with GPUs alone",
            hint='ask for all GPUs of a host: `resources: {gpu: "H100:8"}`',
        )
    name, whole = _whole(template)
    if gpu.count != whole:
        raise Refused(
            f"resources.gpu is `{gpu}`; where nodes work together Modal gives whole hosts,"
            f" which have {whole} x {name}",
            hint=f'ask for `gpu: "{name}:{whole}"`',
        )
    raise Refused(
        f"nodes is {nodes_of(template)}; Modal joins at most {NODES_MAX} machines and"
        f" {GPUS_MAX} GPUs, which is {_most(template)} x {name}:{whole}",
        hint=f"use `nodes: {_most(template)}` or fewer",
    )


def _most(template: Template) -> int:
    """Machines that can be joined; 1 where none can be."""
    gpu = template.resources.gpu
    if gpu is None:
        return 1
    try:
        _, whole = _whole(template)
    except Refused:
        return 1
    return min(NODES_MAX, GPUS_MAX // whole) if gpu.count == whole else 1


def _whole(template: Template) -> tuple[str, int]:
    """(sort, how many a host has). Raises Refused for a sort that Modal does not have."""
    gpu = template.resources.gpu
    assert gpu is not None
    name = machines.gpu(gpu).partition(":")[0]
    return name, machines.GPUS[name]
