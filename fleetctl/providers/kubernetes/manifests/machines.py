"""What a pod asks of its node: cores, memory, disk and GPUs as Kubernetes has them. Pure."""

from __future__ import annotations

import difflib
import math

from fleetctl.common.errors import Refused
from fleetctl.kubernetes.connection import Object
from fleetctl.specs.blocks.kubernetes import ANY_GPU, ClusterSettings
from fleetctl.specs.blocks.resources import Gpu, Resources


def resources(asked: Resources, settings: ClusterSettings) -> Object:
    """Of the container: what is asked is what it gets, and may not exceed."""
    amounts: dict[str, str] = {}
    if asked.cpu is not None:
        amounts["cpu"] = f"{math.ceil(asked.cpu * 1000)}m"
    if asked.memory is not None:
        amounts["memory"] = str(asked.memory)
    if asked.disk is not None:
        amounts["ephemeral-storage"] = str(asked.disk)
    if asked.gpu is not None:
        amounts[settings.gpus.resource] = str(asked.gpu.count)
    return {"requests": amounts, "limits": amounts} if amounts else {}


def node_selector(asked: Resources, settings: ClusterSettings) -> dict[str, str]:
    """Labels that the node must have. Raises Refused for a GPU that the cluster is said not to
    have.
    """
    wanted = dict(settings.node_selector)
    if asked.gpu is not None and asked.gpu.name.lower() != ANY_GPU:
        wanted[settings.gpus.label] = _sort_of(asked.gpu, settings)
    return wanted


def _sort_of(gpu: Gpu, settings: ClusterSettings) -> str:
    found = settings.gpus.value_of(gpu.name)
    if found is None:
        known = [name.upper() for name in settings.gpus.names]
        near = difflib.get_close_matches(gpu.name.upper(), known, n=1)
        listed = ", ".join(settings.gpus.names)
        raise Refused(
            f"resources.gpu is `{gpu.name}`, and `kubernetes.gpus.names` of the Provider object has"
            " no such name",
            hint=(f"did you mean `{near[0]}`? " if near else "") + f"it has {listed}",
        )
    return found
