"""`retry`: units that ended are wanted again. Written to the store in one transaction; the next
pass finds them due.

Called by the socket server and by tests. The attempts that were made are put aside, not removed:
their numbers, logs and costs stay, and what they came to counts no more.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from fleetctl.apply.commit import find
from fleetctl.common.errors import NotFound, UsageError
from fleetctl.controllers.history.requeue import failed, tried
from fleetctl.controllers.model import LIVE_STATES, Run
from fleetctl.controllers.plan import TERMINAL_PHASES
from fleetctl.specs.kinds import KINDS
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE
from fleetctl.stores.base import EventRow, Store
from fleetctl.tracking.annotations import RERUN, RETRIED
from fleetctl.tracking.load import work_of
from fleetctl.tracking.track import Track, Work


@dataclass(frozen=True, slots=True)
class Choice:
    """which: the failed ones, those of `indexes`, all, or all whatever is known of those that have
    not run. request: a name of this request.
    """

    which: Literal["failed", "index", "all", "rerun"]
    indexes: tuple[range, ...] = ()
    request: str = ""


@dataclass(frozen=True, slots=True)
class Requeued:
    key: str
    units: int
    live: int  # that were asked for and run already
    repeated: bool = False


def retry(
    store: Store,
    kind: str,
    name: str,
    choice: Choice,
    now_s: float,
    *,
    namespace: str = DEFAULT_NAMESPACE,
) -> Requeued:
    """Requeue the chosen units of a living object. Raises NotFound and UsageError."""
    resource = find(store, kind, name, namespace)
    if not KINDS[kind].runs:
        raise UsageError(f"a {kind} runs nothing, so there is nothing to retry")
    if choice.request and resource.annotations.get(RETRIED) == choice.request:
        return Requeued(resource.key, 0, 0, repeated=True)
    work = work_of(resource, store.runs)
    if work.controller.handed is not None and choice.which != "failed":
        raise UsageError(
            f"{resource.key} is a sweep at W&B, where a run that has ended well is not run again",
            hint=f"fleetctl retry {resource.key} runs those that failed",
        )
    chosen, live = _chosen(work, choice)
    # One that gave up as a whole has more to do than its failed units.
    goes_on = bool(chosen) or choice.which == "rerun"
    goes_on = goes_on or (choice.which == "failed" and _gave_up(work.track))
    if not goes_on:
        return Requeued(resource.key, 0, live)
    ends = _last_ends(store, resource.uid, set(chosen))
    notes = {**resource.annotations, **({RETRIED: choice.request} if choice.request else {})}
    if choice.which == "rerun":
        notes[RERUN] = str(resource.generation + 1)
    again = replace(resource, generation=resource.generation + 1, annotations=notes)
    said = f"{len(chosen):,} {KINDS[kind].unit}{'s'[: len(chosen) != 1]} requeued by a user"
    with store.transaction():
        for run in ends.values():
            store.runs.advance(replace(run, put_aside=True), from_states=frozenset({run.state}))
        store.resources.put(again, expected_version=resource.version)
        store.events.record([EventRow(resource.uid, now_s, "Normal", "Retried", said)])
    return Requeued(resource.key, len(chosen), live)


def _chosen(work: Work, choice: Choice) -> tuple[list[int], int]:
    """(units to requeue, how many of the wanted ones are live)."""
    history, controller = work.history, work.controller
    if choice.which == "failed":
        return failed(history), 0
    if choice.which in ("all", "rerun"):
        return tried(history, None), len(history.live)
    unit = KINDS[work.resource.kind].unit
    for some in choice.indexes:
        if controller.unit(some[-1]) is None:
            raise NotFound(
                f"{work.resource.key} has no {unit} {some[-1]}",
                hint=f"fleetctl get tasks {work.resource.key}",
            )
    asked = [it for it in history.live_by_index if any(it in some for some in choice.indexes)]
    return tried(history, choice.indexes), len(asked)


def _gave_up(track: Track) -> bool:
    status: Mapping[str, object] = json.loads(track.resource.status or "{}")
    return track.prior.phase in TERMINAL_PHASES and status.get("phase") == "Failed"


def _last_ends(store: Store, uid: str, chosen: set[int]) -> dict[int, Run]:
    """The newest attempt of each."""
    ends: dict[int, Run] = {}
    for run, _ in store.runs.of(uid):
        if run.index in chosen and run.state not in LIVE_STATES:
            ends[run.index] = run
    return ends
