"""Reports to the controller on the batches that servers work on."""

from collections.abc import Mapping
from typing import Any

from fleetctl.gateway.gateway_state import GatewayState
from fleetctl.gateway.keeping.batches import Batch

SHOWN_MAX = 20  # of an endpoint


def batches_of(state: GatewayState, name: tuple[str, str]) -> dict[str, Any]:
    """Summarizes an endpoint's batches; empty without batches. name: namespace and name of the
    endpoint.
    """
    found = [it for it in state.batches.values() if (it.namespace, it.endpoint) == name]
    found.sort(key=lambda it: it.created_at_s)
    told: dict[str, Any] = {}
    if found:
        told["batches"] = [_batch_status(it) for it in found[:SHOWN_MAX]]
    if state.gathering[name]:
        told["gathering"] = state.gathering[name]
    return told


def _batch_status(batch: Batch) -> Mapping[str, Any]:
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
