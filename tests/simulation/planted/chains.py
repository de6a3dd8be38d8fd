"""Bugs with work that depends on other work."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from fleetctl.controllers.depends import dependency_status
from fleetctl.controllers.model import Resource
from fleetctl.engine.decide import dependencies
from tests.simulation.planted.plant import Plant, around, swapped

Context = AbstractContextManager[object]


def released_by_a_stale_success() -> Context:
    """What a dependency came to under an older spec counts."""

    def make(judge: Any) -> Any:
        def patched(dependency: Any, namespace: str, row: Resource | None) -> Any:
            if row is not None and row.status:
                seen = json.loads(row.status).get("observedGeneration", row.generation)
                row = replace(row, generation=seen)
            return judge(dependency, namespace, row)

        return patched

    return around(dependency_status, "get_dependency_status", make)


def released_twice() -> Context:
    """That work has begun is noted, and the note is not read."""
    return swapped(dependencies, "_read_release", lambda _work: None)


def a_missing_dependency_is_none() -> Context:
    """What is not there is not waited for."""

    def make(find: Any) -> Any:
        def patched(found: Any, on_failed: str) -> Any:
            there = [
                it for it in found if it.state is not dependency_status.DependencyState.MISSING
            ]
            return find(there, on_failed)

        return patched

    return around(dependencies, "find_blocker", make)


def results_of_an_older_spec_are_taken() -> Context:
    """What a job gave once is remembered, and given again when it has another program."""
    known: dict[str, Any] = {}

    def make(take: Any) -> Any:
        def patched(giver: Resource, given: Any, runs: Any) -> Any:
            rows = known.setdefault(giver.uid, take(giver, given, runs))
            return replace(rows, generation=giver.generation)

        return patched

    return around(dependencies, "collect_result_rows", make)


PLANTS: tuple[Plant, ...] = (
    released_by_a_stale_success,
    released_twice,
    a_missing_dependency_is_none,
    results_of_an_older_spec_are_taken,
)
