"""What the verbs read: objects, tasks and events out of the store, without a controller.

The one module of cli that knows stores/read/reader.py. Prints nothing, writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from fleetctl.common.deadline import Deadline
from fleetctl.common.errors import NotFound
from fleetctl.specs.kinds.registry import Kind
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE, object_key
from fleetctl.stores.read.reader import Reader
from fleetctl.stores.read.rows import (
    CheckpointRow,
    EventLine,
    LivePrices,
    MetricEnd,
    MetricRow,
    NoticeRow,
    ResourceRow,
    RunRow,
)
from fleetctl.views.kinds import Target
from fleetctl.views.objects import View, view
from fleetctl.views.tasks import Task, attempt, in_order, task

# Asking whether the files changed takes microseconds; at this pace it is below 1 % of a core.
POLL_S = 0.025
LOOK_EVERY_S = 1.0  # so that callers can check on the controller
NEAR_NAMES_MAX = 1000
DURATIONS_MAX = 1000  # the middle of so many is the middle of all, near enough


class Event(NamedTuple):
    """`key` is kind/name. gone_at_s: when its object was gone; None for one that is there."""

    key: str
    line: EventLine
    gone_at_s: float | None = None


class Reading:
    """An open store for one command."""

    def __init__(self, state_dir: Path) -> None:
        self._reader = Reader(state_dir)
        self._version = self._reader.data_version()

    def __enter__(self) -> Reading:
        return self

    def __exit__(self, *error: object) -> None:
        self._reader.close()

    def views(
        self, kind: Kind | None = None, *, specs: bool = False, namespace: str | None = None
    ) -> list[View]:
        """Every object of a kind and a namespace, or of all, oldest first; with their specs, or
        these later.
        """
        within = None if kind is not None and not kind.namespaced else namespace
        name = kind.name if kind else None
        rows = self._reader.resources(name, specs=specs, namespace=within)
        return [self._view(row) for row in rows]

    def find(self, wanted: Target) -> View | None:
        """The living object of that name, else one that is being deleted."""
        row = self._reader.resource(wanted.kind.name, wanted.name, wanted.namespace)
        return None if row is None else self._view(row)

    def by_uid(self, uid: str) -> View | None:
        """The object itself, never another one of the same name; None once it is gone."""
        row = self._reader.resource_of(uid)
        return None if row is None else self._view(row)

    def tasks(
        self, seen: View, *, index: int | None = None, results: bool = False
    ) -> Iterator[Task]:
        """The newest attempt of every index that has run, by index; streams."""
        rows = self._reader.tasks(seen.resource.uid, index=index, results=results)
        return (task(row, seen) for row in rows)

    def task(self, seen: View, index: int) -> Task | None:
        return next(self.tasks(seen, index=index), None)

    def attempts(self, seen: View, *, index: int | None = None) -> Iterator[Task]:
        """Every run, by index and attempt; streams."""
        rows = self._reader.runs(seen.resource.uid, index=index)
        return (attempt(run) for run in rows)

    def live_attempts(self, seen: View) -> list[RunRow]:
        """The attempts that hold a sandbox; costs as much as there are of them."""
        states = ("Starting", "Running", "Stopping")
        return list(self._reader.runs(seen.resource.uid, states=states))

    def failed_tasks(self, seen: View) -> Iterator[Task]:
        """The tasks that count as failed, by index. Costs what is taken, not what there is."""
        for index in in_order(seen.text("failedIndexes")):
            found = self.task(seen, index)
            if found is not None:
                yield found

    def source_of(self, cached: RunRow) -> tuple[str, str, RunRow] | None:
        """(uid and key of the object, run) that a cached task has its result from; None when that
        is gone.
        """
        whose, _, name = cached.message.removeprefix("the result of ").rpartition(", run ")
        uid = self._reader.owner_of(name) if name else None
        run = self._reader.run(name) if uid else None
        return None if run is None or uid is None else (uid, whose, run)

    def last_metric(self, run: str, name: str) -> float | None:
        """The newest value that a run reported under `name`."""
        values = [row.value for row in self._reader.metrics(run) if row.name == name]
        return values[-1] if values else None

    def checkpoints(self, seen: View) -> Iterator[CheckpointRow]:
        """What its attempts saved, the newest last; streams."""
        return self._reader.checkpoints(seen.resource.uid)

    def has_reported(self, run: str) -> bool:
        return next(self._reader.metrics(run), None) is not None

    def metric_ends(self, run: str) -> list[MetricEnd]:
        """How each metric of a run stands, by name."""
        return self._reader.metric_ends(run)

    def metric_names(self, run: str) -> list[str]:
        """What a run reported, in alphabetical order."""
        return self._reader.metric_names(run)

    def points(self, run: str, name: str) -> Iterator[tuple[int, float | None, float]]:
        """(step, value, seconds since the epoch) of what a run reported as `name`; streams."""
        return self._reader.points(run, name)

    def metrics(self, run: str) -> Iterator[MetricRow]:
        """What a run reported, in its order; streams."""
        return self._reader.metrics(run)

    def events(
        self,
        seen: View | None = None,
        *,
        since_s: float = 0.0,
        namespace: str | None = None,
        deleted: bool = False,
    ) -> list[Event]:
        """The events of one object, of a namespace, or of all, oldest first; deleted: also those of
        objects that are gone.
        """
        if seen is not None:
            lines = self._reader.events(seen.resource.uid, since_s=since_s)
            return [Event(seen.key, line) for line in lines]
        owners = {
            uid: (object_key(kind, name, within), gone_at_s)
            for uid, kind, name, within, gone_at_s in self._reader.all_keys()
            if (deleted or gone_at_s is None) and namespace in (None, within)
        }
        return [
            Event(owners[line.uid][0], line, owners[line.uid][1])
            for line in self._reader.events(since_s=since_s)
            if line.uid in owners
        ]

    def notices(self, seen: View | None = None) -> list[NoticeRow]:
        """Of one object, or of all, oldest first."""
        return self._reader.notices(None if seen is None else seen.resource.uid)

    def events_of_gone(self, wanted: Target, *, since_s: float = 0.0) -> list[Event]:
        """The events of all objects that had this name and are gone, oldest first."""
        about = (wanted.kind.name, wanted.name, wanted.namespace)
        return [
            Event(object_key(wanted.kind.name, shown, wanted.namespace), line, gone_at_s)
            for uid, shown, gone_at_s in list(self._reader.gone(*about))
            for line in self._reader.events(uid, since_s=since_s)
        ]

    def namespaces(self) -> dict[str, dict[str, int]]:
        """How many objects of each kind there are in those that are in use."""
        found: dict[str, dict[str, int]] = {}
        for name, kind, many in self._reader.namespaces():
            found.setdefault(name, {})[kind] = many
        return found

    def live_prices(self, seen: View, now_s: float) -> LivePrices:
        return self._reader.live_prices(seen.resource.uid, now_s)

    def durations(self, seen: View) -> list[float]:
        """How many seconds its newest tasks took."""
        return self._reader.durations(seen.resource.uid, limit=DURATIONS_MAX)

    def waiting(self) -> Iterator[ResourceRow]:
        """The objects that wait in queues, of all namespaces."""
        rows = self._reader.resources()
        return (row for row in rows if '"waitingSince"' in row.status and row.deleted_at_s is None)

    def queue(self, name: str) -> View | None:
        row = self._reader.resource("Queue", name, DEFAULT_NAMESPACE)
        return None if row is None else self._view(row)

    def durations_in_queue(self, name: str) -> list[float]:
        """How many seconds the newest runs in it took."""
        return self._reader.durations_in_queue(name, limit=DURATIONS_MAX)

    def live_runs(self) -> int:
        return sum(self._reader.live_runs().values())

    def wait_for_change(self, deadline: Deadline | None = None) -> None:
        """Sleep until the store changed, at most LOOK_EVERY_S, and not beyond the deadline."""
        look = Deadline(LOOK_EVERY_S)
        while (version := self._reader.data_version()) == self._version:
            if look.passed or (deadline is not None and deadline.passed):
                return
            (deadline or look).sleep(POLL_S)
        self._version = version

    def pause(self) -> None:
        """Sleep for one poll: for callers that wait for more than the store."""
        Deadline(None).sleep(POLL_S)

    def _view(self, row: ResourceRow) -> View:
        def spec() -> str:
            if row.spec is not None:
                return row.spec
            whole = self._reader.resource_of(row.uid)
            return (whole.spec if whole is not None else None) or "{}"

        return view(row, spec)


def open_reading(state_dir: Path) -> Reading:
    return Reading(state_dir)


def must_find(wanted: Target, reading: Reading) -> View:
    found = reading.find(wanted)
    if found is None:
        raise missing(wanted, reading)
    return found


def must_find_all(targets: Sequence[Target], reading: Reading) -> list[View]:
    """Raises NotFound that tells of every one that is not there."""
    found = [reading.find(one) for one in targets]
    lost = [one for one, seen in zip(targets, found, strict=True) if seen is None]
    if lost:
        raise all_missing(lost, reading)
    return [seen for seen in found if seen is not None]


def all_missing(lost: Sequence[Target], reading: Reading) -> NotFound:
    """One error for all of them; each is told with its own hint."""
    errors = [missing(one, reading) for one in lost]
    if len(errors) == 1:
        return errors[0]
    hints = [error.hint if error.hint.startswith("did you") else "" for error in errors]
    lines = [
        f"{error} ({hint})" if hint else str(error)
        for error, hint in zip(errors, hints, strict=True)
    ]
    rest = "" if all(hints) else "`fleetctl get all` lists what there is"
    return NotFound("\nerror: ".join(lines), hint=rest)


def missing(wanted: Target, reading: Reading) -> NotFound:
    """The error for an object that is not there, with the nearest name that is."""
    from fleetctl.common.text import did_you_mean, safe

    near_views = reading.views(wanted.kind, namespace=wanted.namespace)
    names = [seen.resource.name for seen in near_views[-NEAR_NAMES_MAX:]]
    near = did_you_mean(wanted.name, names)
    elsewhere = wanted.namespace != DEFAULT_NAMESPACE
    where = f" in namespace `{safe(wanted.namespace)}`" if elsewhere else ""
    flag = f" -n {safe(wanted.namespace)}" if elsewhere else ""
    return NotFound(
        f"there is no {wanted.kind.name} `{safe(wanted.name)}`{where}",
        hint=near or f"`fleetctl get {wanted.kind.plural}{flag}` lists what there is",
    )
