"""What work waits for and is not there, and cycles, in which objects would wait for each other for
ever. Called by predict.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from fleetctl.apply.predictions.needs import missing
from fleetctl.apply.predictions.world import Prediction, Sort, World
from fleetctl.common.errors import UsageError
from fleetctl.controllers.depends.edges import (
    BATCH_JOB,
    DEPENDS_ON,
    PRIOR_TRIALS,
    Edge,
    Node,
    circle_from,
    edges_in,
    edges_of,
)
from fleetctl.controllers.depends.needed import results_wanted
from fleetctl.manifest.messages import Finding
from fleetctl.manifest.problems import Path
from fleetctl.specs.blocks.common import Execution
from fleetctl.specs.values.namespaces import object_key
from fleetctl.stores.read.choosing import SUCCEEDED, check

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest


QUEUE = "Queue"


def of_work(manifest: Manifest, spec: Execution, world: World) -> Iterator[Prediction]:
    """What is missing is waited for, so that is only told."""
    for number, dependency in enumerate(spec.depends_on):
        at: Path = ("spec", "dependsOn", number, dependency.field)
        yield from missing(manifest, at, dependency.kind, dependency.name, world, Sort.DOUBT)
    if spec.queue is not None:
        yield from missing(manifest, ("spec", "queue"), QUEUE, spec.queue, world, Sort.DOUBT)


def of_results(manifest: Manifest, spec: Execution, world: World) -> Iterator[Prediction]:
    """What gives the results is waited for; a condition that is none chooses nothing, ever."""
    given = results_wanted(spec)
    if given is None:
        return
    at: Path = ("spec", "tasks", "fromResults", "job")
    yield from missing(manifest, at, BATCH_JOB, given.job, world, Sort.DOUBT)
    try:
        check(given.where or SUCCEEDED)
    except UsageError as error:
        at = ("spec", "tasks", "fromResults", "where")
        yield Prediction(manifest, Finding(at, at, f": {error}", error.hint))


def circles(manifests: Iterable[Manifest], world: World) -> Iterator[Prediction]:
    """Each circle once, at the first of its edges that is written here."""
    told: set[frozenset[Node]] = set()
    for manifest in manifests:
        if not isinstance(manifest.spec, Execution):
            continue
        path = _circle(manifest, world)
        if path and frozenset(path) not in told:
            told.add(frozenset(path))
            yield from _told(manifest, manifest.spec, path)


def _circle(manifest: Manifest, world: World) -> list[Node]:
    def next_of(node: Node) -> list[Node]:
        return [it.node for it in _edges(node, manifest, world)]

    path = circle_from((manifest.kind, manifest.name), next_of)
    if all(_via(one, two, manifest, world) == PRIOR_TRIALS for one, two in _pairs(path)):
        return []  # told in the words of searches, see needs.py
    return path


def _told(manifest: Manifest, spec: Execution, path: list[Node]) -> Iterator[Prediction]:
    keys = [object_key(*node, manifest.namespace) for node in (*path, path[0])]
    message = f" makes a cycle: {' -> '.join(keys)}; none of them would ever begin"
    edge = next(it for it in edges_of(spec) if it.node == [*path, path[0]][1])
    at = _at(edge, spec)
    yield Prediction(manifest, Finding(at, at, message, "take one of these dependencies out"))


def _edges(node: Node, manifest: Manifest, world: World) -> list[Edge]:
    row = world.found(*node, manifest.namespace)
    return edges_in(json.loads(row.spec)) if row is not None else []


def _pairs(path: list[Node]) -> list[tuple[Node, Node]]:
    return list(zip(path, [*path[1:], *path[:1]], strict=True))


def _via(one: Node, two: Node, manifest: Manifest, world: World) -> str:
    return next((it.via for it in _edges(one, manifest, world) if it.node == two), "")


def _at(edge: Edge, spec: Execution) -> Path:
    if edge.via == DEPENDS_ON:
        number, it = next(
            (number, it) for number, it in enumerate(spec.depends_on) if it.node == edge.node
        )
        return ("spec", "dependsOn", number, it.field)
    return ("spec", *edge.via.split("."))
