"""Finds the edges between objects: those that a spec waits for or takes data from, those that it
needs before it begins, and the key of work whose dependencies are met. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fleetctl.specs.blocks.common import WorkSpec
from fleetctl.specs.blocks.depends import Dependency, FromResults
from fleetctl.specs.content import KINDS, FieldRole
from fleetctl.specs.values.hashing import short_hash
from fleetctl.specs.values.namespaces import KIND_OF

if TYPE_CHECKING:
    from fleetctl.specs.values.scalars import Spec


SWEEP = "Sweep"
BATCH_JOB = "BatchJob"
# The fields that declare an edge, as users write them.
DEPENDS_ON = "dependsOn"
FROM_RESULTS = "tasks.fromResults"
PARAMS_FROM = "paramsFrom"
PRIOR_TRIALS = "search.priorTrials"

Node = tuple[str, str]  # kind, name; all in one namespace


@dataclass(frozen=True, slots=True)
class DependencyEdge:
    """via: the path of the declaring field, as a user writes it; condition: of `dependsOn`, or
    empty. inputs: the result of the other object is part of this one's work.
    """

    kind: str
    name: str
    via: str
    condition: str = ""
    inputs: bool = False

    @property
    def node(self) -> Node:
        return self.kind, self.name


def edges_of(spec: Spec) -> list[DependencyEdge]:
    """Returns the edges of a checked spec; the same as `edges_in` for its document."""
    found = [
        DependencyEdge(it.kind, it.name, DEPENDS_ON, it.condition)
        for it in getattr(spec, "depends_on", ())
    ]
    given = getattr(getattr(spec, "tasks", None), "from_results", None)
    if given is not None:
        found.append(DependencyEdge(BATCH_JOB, given.job, FROM_RESULTS, inputs=True))
    given = getattr(spec, "params_from", None)
    if given is not None:
        found.append(DependencyEdge(SWEEP, given.sweep, PARAMS_FROM, inputs=True))
    given = getattr(getattr(spec, "search", None), "prior_trials", None)
    if given is not None:
        found.append(DependencyEdge(SWEEP, given.from_sweep, PRIOR_TRIALS, inputs=True))
    return found


def edges_in(document: Mapping[str, Any]) -> list[DependencyEdge]:
    """Returns the edges of a stored spec, in the order in which its fields are documented."""
    return list(_list_edges(document))


def _list_edges(document: Mapping[str, Any]) -> Iterator[DependencyEdge]:
    for entry in document.get("dependsOn") or ():
        for field, kind in KIND_OF.items():
            if field in entry:
                condition = entry.get("condition", "Succeeded")
                yield DependencyEdge(kind, entry[field], DEPENDS_ON, condition)
    if given := (document.get("tasks") or {}).get("fromResults"):
        yield DependencyEdge(BATCH_JOB, given["job"], FROM_RESULTS, inputs=True)
    if given := document.get("paramsFrom"):
        yield DependencyEdge(SWEEP, given["sweep"], PARAMS_FROM, inputs=True)
    if given := (document.get("search") or {}).get("priorTrials"):
        yield DependencyEdge(SWEEP, given["fromSweep"], PRIOR_TRIALS, inputs=True)


def circle_from(start: Node, next_of: Callable[[Node], Sequence[Node]]) -> list[Node]:
    """Returns the objects from `start` that wait for each other, `start` first; the shortest such
    circle, empty where it waits for no such. next_of: those that an object waits for.
    """
    came: dict[Node, Node] = {}
    seen = [start]
    for node in seen:
        for other in next_of(node):
            if other == start:
                return _trace_path(node, came)
            if other not in came:
                came[other] = node
                seen.append(other)
    return []


def _trace_path(last: Node, came: Mapping[Node, Node]) -> list[Node]:
    path = [last]
    while path[-1] in came:
        path.append(came[path[-1]])
    return path[::-1]


def find_requested_results(spec: object) -> FromResults | None:
    """Returns the `tasks.fromResults` of a spec."""
    found: FromResults | None = getattr(getattr(spec, "tasks", None), "from_results", None)
    return found


def needed_by(spec: object) -> tuple[Dependency, ...]:
    """Returns the dependencies. The job that gives results must have succeeded, unless `dependsOn`
    has another condition for it.
    """
    if not isinstance(spec, WorkSpec):
        return ()
    given = find_requested_results(spec)
    if given is None or any(it.job == given.job for it in spec.depends_on):
        return spec.depends_on
    return (*spec.depends_on, Dependency(job=given.job))


def release_key(
    kind: str,
    spec: WorkSpec,
    contents: Sequence[str],
    said: Sequence[str] = (),
) -> str:
    """Returns a hash of 16 hex digits over the object's units, their content and its `dependsOn`. A
    change of parallelism, limits or placement does not change the hash. said: requests beside the
    spec, such as a rerun of all work, or the results that are its tasks.
    """
    units = {name for name, role in KINDS[kind].items() if role is FieldRole.UNITS}
    document = spec.model_dump(
        mode="json",
        by_alias=True,
        include=units | {"depends_on"},
        exclude_defaults=True,
    )
    return short_hash([document, list(contents), list(said)])
