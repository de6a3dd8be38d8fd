"""How batches stand that servers work on, as the controller hears of it."""

from collections.abc import Mapping
from typing import Any

from fleetctl.gateway.keeping.batches import Batch
from fleetctl.gateway.state import State

SHOWN_MAX = 20  # of an endpoint


def batches_of(state: State, name: tuple[str, str]) -> dict[str, Any]:
    """name: namespace and name of an endpoint. Nothing where there are none."""
    found = [it for it in state.batches.values() if (it.namespace, it.endpoint) == name]
    found.sort(key=lambda it: it.created_at_s)
    told: dict[str, Any] = {}
    if found:
        told["batches"] = [_batch(it) for it in found[:SHOWN_MAX]]
    if state.gathering[name]:
        told["gathering"] = state.gathering[name]
    return told


def _batch(batch: Batch) -> Mapping[str, Any]:
    return {
        "tag": batch.tag,
        "id": batch.id,
        "uid": batch.uid,
        "state": batch.status or "sending",
        "rows": batch.total,
        "done": batch.done,
        "failed": batch.failed,
        "trouble": batch.trouble,
    }
