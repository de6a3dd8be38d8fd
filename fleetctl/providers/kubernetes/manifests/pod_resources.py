"""Translates resources into a pod's requests and limits: cores, memory, disk and GPUs as Kubernetes
has them. Pure.
"""

from __future__ import annotations

import math

from fleetctl.common.errors import Refused
from fleetctl.kubernetes.connection import Object
from fleetctl.specs.blocks.kubernetes import ANY_GPU, ClusterSettings
from fleetctl.specs.blocks.resources import Gpu, Resources

_NAMES = {"disk": "ephemeral-storage"}  # of ours, in requests


def container_resources(asked: Resources, settings: ClusterSettings) -> Object:
    """Returns the container's resources: it gets as much as it asks for, and may not exceed it,
    where `requests` of the settings do not ask for less.
    """
    amounts: dict[str, str] = {}
    if asked.cpu is not None:
        amounts["cpu"] = f"{math.ceil(asked.cpu * 1000)}m"
    if asked.memory is not None:
        amounts["memory"] = str(asked.memory)
    if asked.disk is not None:
        amounts["ephemeral-storage"] = str(asked.disk)
    if asked.gpu is not None:
        amounts[settings.gpus.resource] = str(asked.gpu.count)
    amounts.update({name: str(it) for name, it in settings.extra_resources.items()})
    less = {_NAMES.get(name, name): str(it) for name, it in settings.requests.items()}
    claims = [{"name": it["name"]} for it in settings.resource_claims]
    made = {"requests": {**amounts, **less}, "limits": amounts, "claims": claims}
    return {name: it for name, it in made.items() if it}


def node_selector(asked: Resources, settings: ClusterSettings) -> dict[str, str]:
    """Returns the labels that the node must have. Raises Refused for a GPU that the settings
    exclude from the cluster.
    """
    wanted = dict(settings.node_selector)
    if asked.gpu is not None and asked.gpu.name.lower() != ANY_GPU:
        wanted[settings.gpus.label] = _sort_of(asked.gpu, settings)
    return wanted


def _sort_of(gpu: Gpu, settings: ClusterSettings) -> str:
    found = settings.gpus.value_of(gpu.name)
    if found is None:
        listed = ", ".join(settings.gpus.names)
        raise Refused(
            f"resources.gpu is `{gpu.name}`, and `kubernetes.gpus.names` of the Provider object has"
            " no such name",
            hint=f"it has {listed}",
        )
    return found
