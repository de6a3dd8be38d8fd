"""`retry`: marks ended units as desired again. Written to the store in one transaction; the next
pass finds them due.

Called by the socket server and by tests. Earlier attempts are put aside, not removed: their
numbers, logs and costs stay, and their results count no more.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from fleetctl.apply.consent import NeedsConsent
from fleetctl.apply.write.commit import find_object
from fleetctl.apply.write.store_changes import put_aside
from fleetctl.common.errors import NotFound, UsageError
from fleetctl.common.text import did_you_mean
from fleetctl.controllers.history.history import find_failed_units, find_tried_units
from fleetctl.controllers.planning.plan import TERMINAL_PHASES
from fleetctl.controllers.reuse.impact import worked_s
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE
from fleetctl.stores.base import EventRow, Store
from fleetctl.tracking.annotations import RERUN, RETRIED, note_trace
from fleetctl.tracking.load import work_of
from fleetctl.tracking.track import ResourceWork, Track


@dataclass(frozen=True, slots=True)
class RetryChoice:
    """The units to retry. which: the failed ones, those of `indexes` and `names`, those from the
    first of these on, all ended ones, or (rerun) all ended ones while units that have not run reuse
    no known result. names: of units that have one.

    Units that build on a chosen unit are repeated with it, unless `only`; approved: the user has
    seen these. request: a name of this request. traceparent: of the span of
    this request.
    """

    which: Literal["failed", "index", "from", "all", "rerun"]
    indexes: tuple[range, ...] = ()
    request: str = ""
    names: tuple[str, ...] = ()
    only: bool = False
    approved: bool = False
    traceparent: str = ""


@dataclass(frozen=True, slots=True)
class RequeuedUnits:
    key: str
    units: int
    live: int  # requested units that run already


def requeue_units(
    store: Store,
    kind: str,
    name: str,
    choice: RetryChoice,
    now_s: float,
    *,
    namespace: str = DEFAULT_NAMESPACE,
) -> RequeuedUnits:
    """Requeues the chosen units of a living object. Raises NotFound and UsageError."""
    resource = find_object(store, kind, name, namespace)
    if not KINDS[kind].runs:
        raise UsageError(f"a {kind} runs nothing, so there is nothing to retry")
    if choice.request and resource.annotations.get(RETRIED) == choice.request:
        return RequeuedUnits(resource.key, 0, 0)
    work = work_of(resource, store.runs)
    if work.controller.handed is not None and choice.which != "failed":
        raise UsageError(
            f"{resource.key} is a sweep at W&B, where a run that has ended well is not run again",
            hint=f"fleetctl retry {resource.key} runs those that failed",
        )
    chosen, live = _choose_units(work, choice)
    if work.controller.in_order and choice.which in ("index", "from", "failed"):
        chosen = _with_later(work, choice, chosen, now_s)
    # An object that gave up as a whole has more to do than its failed units.
    goes_on = bool(chosen) or choice.which == "rerun"
    goes_on = goes_on or (choice.which == "failed" and _has_given_up(work.track))
    if not goes_on:
        return RequeuedUnits(resource.key, 0, live)
    fields = {**resource.annotations, **({RETRIED: choice.request} if choice.request else {})}
    if choice.which == "rerun":
        fields[RERUN] = repr(now_s)
    if choice.traceparent:
        fields = note_trace(fields, choice.traceparent, now_s)
    again = replace(resource, generation=resource.generation + 1, annotations=fields)
    message = f"{len(chosen):,} {KINDS[kind].unit}{'s'[: len(chosen) != 1]} requeued by a user"
    with store.transaction():
        put_aside(store, resource.uid, None if choice.which == "rerun" else set(chosen))
        store.resources.put(again, expected_version=resource.version)
        store.events.record(
            [
                EventRow(
                    resource.uid,
                    now_s,
                    "Normal",
                    "Retried",
                    message,
                )
            ]
        )
    return RequeuedUnits(resource.key, len(chosen), live)


def _choose_units(work: ResourceWork, choice: RetryChoice) -> tuple[list[int], int]:
    """Returns (units to requeue, number of desired units that are live)."""
    history = work.history
    controller = work.controller
    if choice.which == "failed":
        return find_failed_units(history), 0
    if choice.which in ("all", "rerun"):
        return find_tried_units(history, None), len(history.live)
    unit = KINDS[work.resource.kind].unit
    for some in choice.indexes:
        if controller.unit(some[-1]) is None:
            raise NotFound(
                f"{work.resource.key} has no {unit} {some[-1]}",
                hint=f"fleetctl get tasks {work.resource.key}",
            )
    wanted = (*choice.indexes, *(range(it, it + 1) for it in _find_named(work, choice.names)))
    asked = [it for it in history.live_by_index if any(it in some for some in wanted)]
    return find_tried_units(history, wanted), len(asked)


def _find_named(work: ResourceWork, names: Sequence[str]) -> Iterator[int]:
    """Yields the indexes of units that have these names. Raises NotFound and UsageError."""
    kind = KINDS[work.resource.kind]
    key = work.resource.key
    if names and not kind.named:
        raise UsageError(f"a {kind.unit} of {key} has a number, and no name", hint="use `--index`")
    units = [work.controller.unit(index) for index in work.controller.indexes()] if names else []
    known = {str(unit.params[kind.unit]): unit.index for unit in units if unit is not None}
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known) or f"there is {', '.join(known)}"
            raise NotFound(f"{key} has no {kind.unit} `{name}`", hint=hint)
        yield known[name]


def _with_later(
    work: ResourceWork,
    choice: RetryChoice,
    chosen: list[int],
    now_s: float,
) -> list[int]:
    """Returns the units with the units that build on them. Raises NeedsConsent for losses that the
    user neither named nor approved, and UsageError where `only` is impossible.
    """
    order = list(work.controller.indexes())
    history = work.history
    if not chosen:
        return chosen
    first = min(map(order.index, chosen))
    later = order[first + 1 :]
    running = [it for it in later if it in history.live_by_index]
    if choice.only:
        if running:
            called = work.controller.called(running[0])
            message = (
                f"{called} of {work.resource.key} runs, and builds on what would be done again"
            )
            raise UsageError(message, hint="wait for its end, or leave `--only` out")
        return chosen
    redone = find_tried_units(history, [range(it, it + 1) for it in later])
    unasked = [it for it in redone if it not in chosen and it in history.succeeded]
    losses = list(_list_losses(work, [] if choice.which == "from" else unasked, running, now_s))
    if losses and not choice.approved:
        raise NeedsConsent(losses, hint="add --yes to do it all the same, or --only for it alone")
    return sorted({*chosen, *redone})


def _list_losses(
    work: ResourceWork,
    redone: Sequence[int],
    running: Sequence[int],
    now_s: float,
) -> Iterator[str]:
    """Yields the losses beyond the named units, one sentence each."""
    key = work.resource.key
    called = work.controller.called
    for index in redone:
        yield f"{key}: {called(index)} has succeeded, builds on it, and would run again"
    for index in running:
        run = work.history.live[work.history.live_by_index[index]]
        spent = f"{worked_s([run], now_s):,.0f} s of work"
        yield f"{key}: {called(index)} runs, builds on it, and would be stopped ({spent})"


def _has_given_up(track: Track) -> bool:
    status: Mapping[str, object] = json.loads(track.resource.status or "{}")
    return track.prior.phase in TERMINAL_PHASES and status.get("phase") in ("Failed", "Skipped")
