"""Decides how many machines an attempt has at Modal, and which it cannot have: the rules of its
clustered functions, as its SDK and guide documented them in 2026-10. Pure.
"""

from __future__ import annotations

from fleetctl.common.errors import Refused
from fleetctl.providers.modal.runs import modal_machines
from fleetctl.specs.blocks.nodes import nodes_of
from fleetctl.specs.blocks.template import Template

NODES_MAX, GPUS_MAX = 32, 256  # for one cluster


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
    name = modal_machines.gpu_name(gpu).partition(":")[0]
    return name, modal_machines.GPUS[name]
