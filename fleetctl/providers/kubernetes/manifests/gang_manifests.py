"""Builds the objects of an attempt with several nodes: an Indexed Job, and a Service without an
address that gives its pods names. Pure.

All restarts are ours, of all nodes at once: the first pod that fails ends the Job, and with it the
others, also where no controller is there to see it.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from fleetctl.controllers.model import GroupMember
from fleetctl.kubernetes.connection import Object
from fleetctl.providers.contract.base import RunRequest
from fleetctl.providers.kubernetes.manifests.labels import JOB_INDEX, JOB_NAME, MANAGED
from fleetctl.specs.blocks.kubernetes import ClusterSettings
from fleetctl.specs.blocks.nodes import nodes_of, ray_of
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.values.namespaces import split_key

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


def build_services(job: Object, request: RunRequest) -> list[Object]:
    """Returns the Services of a run's Job: one that names its pods, where there are several, and of
    a group one for all its nodes and one for each, whose names the next attempt's Job gets again.
    """
    name = job["metadata"]["name"]
    nodes = gang_size(request.template)
    made = [build_service(job)] if nodes > 1 else []
    groups = request.groups
    if groups is None:
        return made
    own = next(it for it in groups.members if it.name == groups.own)
    made.append(build_service(job, group_service(request, own)))
    for rank in range(nodes):
        one = build_service(job, group_service(request, own, rank))
        one["spec"]["selector"] = {JOB_NAME: name, **({JOB_INDEX: str(rank)} if nodes > 1 else {})}
        made.append(one)
    return made


def group_service(
    request: RunRequest,
    group: GroupMember,
    rank: int | None = None,
) -> str:
    """Returns the name of the Service of a group, or of one of its nodes: a DNS label that is the
    same for each attempt, and differs for another object of the name.
    """
    which = blake2b(f"{request.owner}/{request.uid}/{group.index}".encode(), digest_size=4)
    _, name, _ = split_key(request.resource)
    words = f"g-{name[:20]}-{group.name[:20]}".rstrip("-")
    return f"{words}-{which.hexdigest()}" + ("" if rank is None else f"-{rank}")


def build_groups(request: RunRequest, namespace: str) -> list[dict[str, Any]]:
    """Returns the groups of a run, its own first, as guest/nodes/gang.py reads them; `hosts` of its
    own are not known before its pods run.
    """
    if request.groups is None:
        return []
    made: list[dict[str, Any]] = []
    for group in request.groups.members:
        port = "" if group.port is None else f":{group.port}"
        names = [group_service(request, group, rank) for rank in range(group.nodes)]
        made.append(
            {
                "name": group.name,
                "addresses": [f"{name}.{namespace}.svc{port}" for name in names],
                "hosts": [""] * group.nodes,
                "ports": [] if group.port is None else [group.port] * group.nodes,
            }
        )
    own = request.groups.own
    return sorted(made, key=lambda it: it["name"] != own)


def build_service(job: Object, called: str = "") -> Object:
    """Returns the Service that gives all pods of the Job names; it goes with the Job. called: its
    name, that of the Job by default.
    """
    metadata = job["metadata"]
    name = metadata["name"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": metadata["uid"]}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": called or name,
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
