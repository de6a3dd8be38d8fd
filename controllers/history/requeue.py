"""Which units a `retry` asks to run again. Pure; called by the engine when a person asks.

What is live is left alone: it is running already. What never had an attempt needs no asking.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fleetctl.controllers.history.history import History
from fleetctl.controllers.model import RunState


def failed(history: History) -> list[int]:
    """Units that were given up, and those that a provider refused; ascending."""
    refused = (
        index
        for index, unit in history.unfinished.items()
        if unit.last is not None and unit.last.state is RunState.REFUSED
    )
    return sorted({*history.failed, *refused} - history.live_by_index.keys())


def tried(history: History, wanted: Sequence[range] | None) -> list[int]:
    """Units of `wanted`, or all, that had attempts and are not live, whatever came of them."""
    found = {*history.succeeded, *history.failed, *history.pruned, *_waiting(history)}
    chosen = found if wanted is None else {it for it in found if any(it in some for some in wanted)}
    return sorted(chosen - history.live_by_index.keys())


def _waiting(history: History) -> Iterator[int]:
    """Those that wait for their next attempt; one that was asked to run again waits already."""
    return (index for index, unit in history.unfinished.items() if unit.last is not None)
