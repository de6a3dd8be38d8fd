"""What a run's record names its Job and its pod by. Pure.

`JOB/POD` is a run of one pod. Of several it is `JOB/POD/nodes=N`, with the pod of node 0; the
others are followed under `JOB/POD/node=K`, which no record ever holds.
"""

from __future__ import annotations

from dataclasses import dataclass

from fleetctl.kubernetes.connection import Object
from fleetctl.providers.kubernetes.runs import statuses

_NODES, _NODE = "nodes=", "node="


@dataclass(frozen=True, slots=True)
class Handle:
    """pod: its name, or "" before there is one. nodes: of the run; node: which of them it is."""

    job: str
    pod: str
    nodes: int = 1
    node: int = 0

    def __str__(self) -> str:
        if self.node:
            return f"{self.job}/{self.pod}/{_NODE}{self.node}"
        return f"{self.job}/{self.pod}" + (f"/{_NODES}{self.nodes}" if self.nodes > 1 else "")


def parsed(text: str) -> Handle:
    job, _, rest = text.partition("/")
    pod, _, which = rest.partition("/")
    if which.startswith(_NODES):
        return Handle(job, pod, nodes=int(which.removeprefix(_NODES)))
    if which.startswith(_NODE):
        return Handle(job, pod, node=int(which.removeprefix(_NODE)))
    return Handle(job, pod)


def parts(text: str) -> tuple[str, str]:
    """(name of the Job, name of its pod or "")."""
    found = parsed(text)
    return found.job, found.pod


def handle_of(job: Object, pod: Object | None) -> str:
    """pod: the one that there is, or that of node 0."""
    nodes = statuses.nodes_of(job)
    return str(Handle(statuses.name_of(job), statuses.name_of(pod or {}), nodes))
