"""Who depends on whom: the objects that a spec waits for or takes something from, and circles of
them. Read from stored specs without their models. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fleetctl.specs.values.dependencies import KIND_OF

if TYPE_CHECKING:
    from fleetctl.specs.values.scalars import Spec

SWEEP, BATCH_JOB = "Sweep", "BatchJob"
# The fields that say so, as people write them.
DEPENDS_ON, FROM_RESULTS = "dependsOn", "tasks.fromResults"
PARAMS_FROM, PRIOR_TRIALS = "paramsFrom", "search.priorTrials"

Node = tuple[str, str]  # kind, name; all of one namespace


@dataclass(frozen=True, slots=True)
class Edge:
    """via: the path of the field that says so, as a person writes it; condition: of `dependsOn`, or
    empty. inputs: what the other one came to is part of this one's work.
    """

    kind: str
    name: str
    via: str
    condition: str = ""
    inputs: bool = False

    @property
    def node(self) -> Node:
        return self.kind, self.name


def edges_of(spec: Spec) -> list[Edge]:
    """Of a checked spec; the same as `edges_in` of its document."""
    found = [
        Edge(it.kind, it.name, DEPENDS_ON, it.condition) for it in getattr(spec, "depends_on", ())
    ]
    given = getattr(getattr(spec, "tasks", None), "from_results", None)
    if given is not None:
        found.append(Edge(BATCH_JOB, given.job, FROM_RESULTS, inputs=True))
    given = getattr(spec, "params_from", None)
    if given is not None:
        found.append(Edge(SWEEP, given.sweep, PARAMS_FROM, inputs=True))
    given = getattr(getattr(spec, "search", None), "prior_trials", None)
    if given is not None:
        found.append(Edge(SWEEP, given.from_sweep, PRIOR_TRIALS, inputs=True))
    return found


def edges_in(document: Mapping[str, Any]) -> list[Edge]:
    """Of a stored spec, in the order in which its fields are documented."""
    return list(_edges(document))


def _edges(document: Mapping[str, Any]) -> Iterator[Edge]:
    for entry in document.get("dependsOn") or ():
        for field, kind in KIND_OF.items():
            if field in entry:
                condition = entry.get("condition", "Succeeded")
                yield Edge(kind, entry[field], DEPENDS_ON, condition)
    if given := (document.get("tasks") or {}).get("fromResults"):
        yield Edge(BATCH_JOB, given["job"], FROM_RESULTS, inputs=True)
    if given := document.get("paramsFrom"):
        yield Edge(SWEEP, given["sweep"], PARAMS_FROM, inputs=True)
    if given := (document.get("search") or {}).get("priorTrials"):
        yield Edge(SWEEP, given["fromSweep"], PRIOR_TRIALS, inputs=True)


def circle_from(start: Node, next_of: Callable[[Node], Sequence[Node]]) -> list[Node]:
    """The objects from `start` that wait for each other, `start` first; the shortest such circle,
    empty where it waits for no such. next_of: those that an object waits for.
    """
    came: dict[Node, Node] = {}
    seen = [start]
    for node in seen:
        for other in next_of(node):
            if other == start:
                return _path(node, came)
            if other not in came:
                came[other] = node
                seen.append(other)
    return []


def _path(last: Node, came: Mapping[Node, Node]) -> list[Node]:
    path = [last]
    while path[-1] in came:
        path.append(came[path[-1]])
    return path[::-1]
