"""Builds the objects of an attempt with several nodes: an Indexed Job, and a Service without an
address that gives its pods names. Pure.

All restarts are ours, of all nodes at once: the first pod that fails ends the Job, and with it the
others, also where no controller is there to see it.
"""

from __future__ import annotations

from collections.abc import Sequence

from fleetctl.kubernetes.connection import Object
from fleetctl.providers.kubernetes.manifests.labels import JOB_NAME, MANAGED
from fleetctl.specs.blocks.kubernetes import ClusterSettings
from fleetctl.specs.blocks.nodes import nodes_of, ray_of
from fleetctl.specs.blocks.template import Template

NODES_MAX = 256  # for one attempt: each is followed over a websocket of its own
PORT = 29500  # of node 0 for its peers, as torchrun has it; each pod has a network of its own
SHARED_BYTES = 16 * 1024**3  # of /dev/shm where neither the task nor the Provider object sets it


def gang_size(template: Template) -> int:
    """Nodes of an attempt: of elastic ones the most; the engine asks for fewer once that waits."""
    nodes = nodes_of(template)
    return max(nodes.min, min(nodes.max, NODES_MAX))


def job_fields(nodes: int) -> Object:
    """Returns fields of the Job's spec. Node 0 decides success, in whatever state the others
    are.
    """
    if nodes == 1:
        return {"completions": 1, "parallelism": 1}
    return {
        "completions": nodes,
        "parallelism": nodes,
        "completionMode": "Indexed",
        "successPolicy": {"rules": [{"succeededIndexes": "0"}]},
    }


def pod_fields(job: str, nodes: int) -> Object:
    """Returns fields of the pod's spec. Kubernetes makes the host name from the Job's name and the
    number.
    """
    if nodes > 1:
        return {"subdomain": job}
    return {}


def host_name(
    job: str,
    namespace: str,
    node: int,
) -> str:
    """Returns the host name by which peers find a node, whatever the cluster's own domain is."""
    return f"{job}-{node}.{job}.{namespace}.svc"


def build_service(job: Object) -> Object:
    """Goes with its Job."""
    metadata = job["metadata"]
    name = metadata["name"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": metadata["uid"]}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "labels": {**MANAGED, **(metadata.get("labels") or {})},
            "ownerReferences": [owner],
        },
        "spec": {
            "clusterIP": "None",
            "selector": {JOB_NAME: name},
            # Nodes find each other before any node is ready.
            "publishNotReadyAddresses": True,
        },
    }


def has_ray(template: Template) -> bool:
    """Returns whether a Ray cluster is started for it."""
    ray = ray_of(template)
    return ray.enabled and ray.address is None


def shares_memory(template: Template) -> bool:
    """Returns whether its processes share memory beyond the 64 MiB that a pod has by itself."""
    return template.resources.gpu is not None or gang_size(template) > 1 or has_ray(template)


def shared_memory(template: Template, settings: ClusterSettings) -> Object:
    """Returns the emptyDir of /dev/shm, which counts as memory of the task: never more than it may
    have.
    """
    memory = template.resources.memory
    asked = settings.shared_memory or memory or SHARED_BYTES
    limit = asked if memory is None else min(asked, memory)
    return {"medium": "Memory", "sizeLimit": str(limit)}


def resolve_command(names: Sequence[str], patience_s: float) -> list[str]:
    """A command that ends once all the names are known in its pod; else 1, with the first that is
    not.
    """
    return ["python3", "-I", "-S", "-c", _RESOLVE, str(patience_s), *names]


_RESOLVE = """
import socket, sys, time
until = time.monotonic() + float(sys.argv[1])
for name in sys.argv[2:]:
    while True:
        try:
            socket.getaddrinfo(name, None)
            break
        except OSError as error:
            if time.monotonic() > until:
                sys.exit(f"{name}: {error}")
            time.sleep(0.2)
"""
