"""Formats and parses the handle of a Job and its pod in a run's record. Pure.

`NAMESPACE:JOB/POD` is a run with a single pod. A run with several is `NAMESPACE:JOB/POD/nodes=N`,
with the pod of node 0; the others are followed under `…/node=K`, which no record ever holds.
Records of earlier versions name no namespace.
"""

from __future__ import annotations

from dataclasses import dataclass

from fleetctl.kubernetes.connection import Object
from fleetctl.providers.kubernetes.runs import pod_statuses

_NODES = "nodes="
_NODE = "node="


@dataclass(frozen=True, slots=True)
class JobHandle:
    """The handle of a Job and a pod. pod: its name, or "" before there is a pod. nodes: number of
    nodes of the run; node: rank of this node. namespace: of the cluster; "" in records of earlier
    versions.
    """

    job: str
    pod: str
    nodes: int = 1
    node: int = 0
    namespace: str = ""

    def __str__(self) -> str:
        there = f"{self.namespace}:" if self.namespace else ""
        if self.node:
            return f"{there}{self.job}/{self.pod}/{_NODE}{self.node}"
        nodes = f"/{_NODES}{self.nodes}" if self.nodes > 1 else ""
        return f"{there}{self.job}/{self.pod}{nodes}"


def parse_handle(text: str) -> JobHandle:
    first, _, rest = text.partition("/")
    namespace, _, job = first.rpartition(":")
    pod, _, which = rest.partition("/")
    if which.startswith(_NODES):
        return JobHandle(job, pod, nodes=int(which.removeprefix(_NODES)), namespace=namespace)
    if which.startswith(_NODE):
        return JobHandle(job, pod, node=int(which.removeprefix(_NODE)), namespace=namespace)
    return JobHandle(job, pod, namespace=namespace)


def split_handle(text: str) -> tuple[str, str]:
    """Returns (name of the Job, name of its pod or "")."""
    found = parse_handle(text)
    return found.job, found.pod


def handle_of(job: Object, pod: Object | None) -> str:
    """pod: the one that there is, or that of node 0."""
    made = JobHandle(
        pod_statuses.name_of(job),
        pod_statuses.name_of(pod or {}),
        nodes=pod_statuses.nodes_of(job),
        namespace=pod_statuses.namespace_of(job),
    )
    return str(made)
