"""Selects the units that a `retry` runs again. Pure; called by the engine on a user's request.

A live unit is left alone: it is running already. A unit without an attempt starts without a retry.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fleetctl.controllers.history.history import History
from fleetctl.controllers.model import RunState


def find_failed_units(history: History) -> list[int]:
    """Units that were given up, and those that a provider refused; ascending."""
    refused = (
        index
        for index, unit in history.unfinished.items()
        if unit.last is not None and unit.last.state is RunState.REFUSED
    )
    return sorted({*history.failed, *refused} - history.live_by_index.keys())


def find_tried_units(history: History, wanted: Sequence[range] | None) -> list[int]:
    """Returns units of `wanted`, or all, that had attempts and are not live, with any outcome."""
    found = {*history.succeeded, *history.failed, *history.pruned, *_find_waiting_units(history)}
    chosen = found if wanted is None else {it for it in found if any(it in some for some in wanted)}
    return sorted(chosen - history.live_by_index.keys())


def _find_waiting_units(history: History) -> Iterator[int]:
    """Yields units that wait for their next attempt; one that was asked to run again waits
    already.
    """
    return (index for index, unit in history.unfinished.items() if unit.last is not None)
