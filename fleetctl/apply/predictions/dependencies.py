"""Dependencies that are missing, and cycles, in which objects would wait for each other for ever.
Called by predict.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from fleetctl.apply.predictions.missing_objects import predict_missing
from fleetctl.apply.predictions.world import PlannedWorld
from fleetctl.common.errors import UsageError
from fleetctl.common.finding import Finding, Path, Severity
from fleetctl.controllers.depends.edges import (
    BATCH_JOB,
    DEPENDS_ON,
    PRIOR_TRIALS,
    DependencyEdge,
    Node,
    circle_from,
    edges_in,
    edges_of,
)
from fleetctl.controllers.depends.needed import find_requested_results
from fleetctl.manifest.unread import until_unread
from fleetctl.specs.blocks.common import WorkSpec
from fleetctl.specs.values.namespaces import object_key
from fleetctl.stores.read.row_filter import SUCCEEDED, check_condition

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest


QUEUE = "Queue"


def of_work(
    manifest: Manifest,
    spec: WorkSpec,
    world: PlannedWorld,
) -> Iterator[Finding]:
    """Yields missing dependencies. The work waits for them, so they are only warnings."""
    for number, dependency in enumerate(spec.depends_on):
        at: Path = ("spec", "dependsOn", number, dependency.field)
        yield from predict_missing(
            manifest,
            at,
            dependency.kind,
            dependency.name,
            world,
            Severity.DOUBT,
        )
    if spec.queue is not None:
        yield from predict_missing(
            manifest,
            ("spec", "queue"),
            QUEUE,
            spec.queue,
            world,
            Severity.DOUBT,
        )


def of_results(
    manifest: Manifest,
    spec: WorkSpec,
    world: PlannedWorld,
) -> Iterator[Finding]:
    """Yields missing sources of results, for which the work waits, and conditions that can never
    choose a result."""
    given = find_requested_results(spec)
    if given is None:
        return
    at: Path = ("spec", "tasks", "fromResults", "job")
    yield from predict_missing(
        manifest,
        at,
        BATCH_JOB,
        given.job,
        world,
        Severity.DOUBT,
    )
    try:
        check_condition(given.where or SUCCEEDED)
    except UsageError as error:
        at = ("spec", "tasks", "fromResults", "where")
        yield Finding(at, f": {error}", error.hint)


def find_cycles(
    manifests: Iterable[Manifest], world: PlannedWorld
) -> Iterator[tuple[Manifest, Finding]]:
    """Yields each circle once, at the first of its edges that is written here."""
    told: set[frozenset[Node]] = set()
    for manifest in manifests:
        if not isinstance(manifest.spec, WorkSpec):
            continue
        path = _find_cycle(manifest, world)
        if path and frozenset(path) not in told:
            told.add(frozenset(path))
            found = until_unread(_describe_cycle(manifest, manifest.spec, path))
            yield from ((manifest, it) for it in found)


def _find_cycle(manifest: Manifest, world: PlannedWorld) -> list[Node]:
    def next_of(node: Node) -> list[Node]:
        return [it.node for it in _list_edges(node, manifest, world)]

    path = circle_from((manifest.kind, manifest.name), next_of)
    if all(_find_via(one, two, manifest, world) == PRIOR_TRIALS for one, two in _pair_nodes(path)):
        return []  # reported as a search, see missing_objects.py
    return path


def _describe_cycle(
    manifest: Manifest,
    spec: WorkSpec,
    path: list[Node],
) -> Iterator[Finding]:
    keys = [object_key(*node, manifest.namespace) for node in (*path, path[0])]
    message = f" makes a cycle: {' -> '.join(keys)}; none of them would ever begin"
    edge = next(it for it in edges_of(spec) if it.node == [*path, path[0]][1])
    at = _locate_edge(edge, spec)
    yield Finding(at, message, "take one of these dependencies out")


def _list_edges(
    node: Node,
    manifest: Manifest,
    world: PlannedWorld,
) -> list[DependencyEdge]:
    row = world.found(*node, manifest.namespace)
    if row is not None:
        return edges_in(json.loads(row.spec))
    return []


def _pair_nodes(path: list[Node]) -> list[tuple[Node, Node]]:
    return list(zip(path, [*path[1:], *path[:1]], strict=True))


def _find_via(
    one: Node,
    two: Node,
    manifest: Manifest,
    world: PlannedWorld,
) -> str:
    return next((it.via for it in _list_edges(one, manifest, world) if it.node == two), "")


def _locate_edge(edge: DependencyEdge, spec: WorkSpec) -> Path:
    if edge.via == DEPENDS_ON:
        number, it = next(
            (number, it) for number, it in enumerate(spec.depends_on) if it.node == edge.node
        )
        return ("spec", "dependsOn", number, it.field)
    return ("spec", *edge.via.split("."))
