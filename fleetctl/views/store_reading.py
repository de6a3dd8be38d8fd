"""Reads objects, tasks and events out of the store for the verbs, without a controller.

The one module of cli that knows stores/read/reader.py. Prints nothing, writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from fleetctl.common.clock import Deadline
from fleetctl.common.errors import NotFound
from fleetctl.common.remote import REMOTE
from fleetctl.specs.builtin import RunMachine, name_machine, runs_here
from fleetctl.specs.kinds.registry import Kind
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE, object_key
from fleetctl.stores.read.reader import Reader
from fleetctl.stores.read.rows import (
    CheckpointRow,
    EventLine,
    LiveRunPrices,
    MetricEnd,
    MetricRow,
    NoticeRow,
    ObjectQuery,
    ResourceRow,
    RunRow,
)
from fleetctl.views.kinds import Target
from fleetctl.views.objects import View, build_view
from fleetctl.views.tasks import FileNames, Task, build_attempt, build_task, list_in_order

# A look at the files' marks takes microseconds; at this pace it is below 1 % of a core.
POLL_S = 0.025
LOOK_EVERY_S = 1.0  # so that callers can check on the controller
NEAR_NAMES_MAX = 1000
COUNTS_KEPT_MAX = 64  # lists of a reading whose counts are kept
DURATIONS_MAX = 1000  # the median of this many is near enough to the median of all


class EventView(NamedTuple):
    """An event. `key` is kind/name. gone_at_s: when its object was gone; None for an existing
    one."""

    key: str
    line: EventLine
    gone_at_s: float | None = None


class StoreReading:
    """An open store for one command."""

    def __init__(self, state_dir: Path) -> None:
        remote = REMOTE.get()
        self._reader: Reader = Reader(state_dir) if remote is None else remote.reader()
        self._version = self._reader.data_version()
        self._counted: tuple[object, dict[ObjectQuery, dict[str, int]]] = (None, {})
        self._named: tuple[tuple[str, int], FileNames | None] = (("", 0), None)
        self._sorts: dict[str, str] = {}  # of the providers that users declared

    def __enter__(self) -> StoreReading:
        return self

    def __exit__(self, *error: object) -> None:
        self._reader.close()

    @property
    def rows(self) -> Reader:
        """Returns the reader of this store, for callers that pass on its rows as they are."""
        return self._reader

    def views(
        self,
        kind: Kind | None = None,
        *,
        specs: bool = False,
        namespace: str | None = None,
    ) -> list[View]:
        """Returns every object of a kind and a namespace, or of all, oldest first; with their
        specs, or these later.
        """
        within = None if kind is not None and not kind.namespaced else namespace
        name = kind.name if kind else None
        rows = self._reader.resources(name, specs=specs, namespace=within)
        return [self._view(row) for row in rows]

    def page(self, wanted: ObjectQuery) -> list[tuple[View, object, int]]:
        """Returns a page of a list; each object with what the next page comes after."""
        return [(self._view(row), *after) for row, *after in self._reader.page(wanted)]  # type: ignore[misc]

    def phase_counts(self, wanted: ObjectQuery) -> dict[str, int]:
        """Returns the number of objects of a list, by phase. Counted again where the store changed:
        a page of a list costs a fraction of its counts."""
        whole = wanted._replace(phases=(), sort="", descending=False, after=None, limit=0)
        version = self._reader.data_version()
        if version != self._counted[0] or len(self._counted[1]) >= COUNTS_KEPT_MAX:
            self._counted = (version, {})
        found = self._counted[1].get(whole)
        if found is None:
            found = self._counted[1][whole] = self._reader.phase_counts(wanted)
        return found

    def find(self, wanted: Target) -> View | None:
        """Returns the living object with that name, else one that is being deleted."""
        row = self._reader.resource(wanted.kind.name, wanted.name, wanted.namespace)
        if row is None:
            return None
        return self._view(row)

    def by_uid(self, uid: str) -> View | None:
        """Returns the object itself, never another one of the same name; None once it is gone."""
        row = self._reader.resource_of(uid)
        if row is None:
            return None
        return self._view(row)

    def tasks(
        self,
        seen: View,
        *,
        index: int | None = None,
        results: bool = False,
        begin: int = 0,
    ) -> Iterator[Task]:
        """Yields the newest attempt of every index from `begin` on that has run, by index;
        streams."""
        rows = self._reader.tasks(seen.resource.uid, index=index, results=results, begin=begin)
        tasks = (self._with_machine(build_task(row, seen)) for row in rows)
        return self.with_files(tasks, seen)

    def task(self, seen: View, index: int) -> Task | None:
        return next(self.tasks(seen, index=index), None)

    def attempts(self, seen: View, *, index: int | None = None) -> Iterator[Task]:
        """Yields every run, by index and attempt; streams."""
        rows = self._reader.runs(seen.resource.uid, index=index)
        attempts = (self._with_machine(build_attempt(run)) for run in rows)
        return self.with_files(attempts, seen)

    def machine_of(self, run: RunRow) -> RunMachine:
        """Returns the machine that a run has or had, as its provider names it."""
        if not run.handle or runs_here(run.provider):
            return RunMachine()
        if run.provider not in self._sorts:
            self._sorts[run.provider] = self._sort_of(run.provider)
        return name_machine(self._sorts[run.provider], run.handle)

    def _with_machine(self, one: Task) -> Task:
        machine = self.machine_of(one.run)
        if machine.name:
            return one._replace(machine=machine)
        return one

    def _sort_of(self, provider: str) -> str:
        """Returns the type of a provider; its name where no Provider object says more."""
        row = self._reader.resource("Provider", provider, DEFAULT_NAMESPACE)
        spec = self._view(row).spec() if row is not None else {}
        return str(spec.get("type") or provider)

    def with_files(self, tasks: Iterator[Task], seen: View) -> Iterator[Task]:
        """Returns the tasks, with the names of their files where they have any."""
        at = (seen.resource.uid, seen.resource.version)
        if at != self._named[0]:
            self._named = at, FileNames.of(seen)
        names = self._named[1]
        if names is None:
            return tasks
        return names.name_tasks(tasks)

    def live_attempts(self, seen: View) -> list[RunRow]:
        """Returns the attempts that hold a sandbox; costs as much as their number."""
        states = ("Starting", "Running", "Stopping")
        return list(self._reader.runs(seen.resource.uid, states=states))

    def failed_tasks(self, seen: View) -> Iterator[Task]:
        """Yields the tasks that count as failed, by index. Costs only as many as the caller
        takes."""
        for index in list_in_order(seen.text("failedIndexes")):
            found = self.task(seen, index)
            if found is not None:
                yield found

    def source_of(self, cached: RunRow) -> tuple[str, str, RunRow] | None:
        """Returns (uid and key of the object, run) that a cached task has its result from; None
        when that is gone.
        """
        whose, _, name = cached.message.removeprefix("the result of ").rpartition(", run ")
        uid = self._reader.owner_of(name) if name else None
        run = self._reader.run(name) if uid else None
        if run is None or uid is None:
            return None
        return (uid, whose, run)

    def last_metric(self, run: str, name: str) -> float | None:
        """Returns the newest value that a run reported under `name`."""
        values = [row.value for row in self._reader.metrics(run) if row.name == name]
        if values:
            return values[-1]
        return None

    def checkpoints(self, seen: View) -> Iterator[CheckpointRow]:
        """Yields the checkpoints of its attempts, the newest last; streams."""
        return self._reader.checkpoints(seen.resource.uid)

    def resumed_steps(self, seen: View) -> set[int]:
        """Returns the steps of checkpoints from which its attempts began."""
        return self._reader.resumed_steps(seen.resource.uid)

    def has_reported(self, run: str) -> bool:
        return next(self._reader.metrics(run), None) is not None

    def metric_ends(self, run: str) -> list[MetricEnd]:
        """Returns the newest values of each metric of a run, by name."""
        return self._reader.metric_ends(run)

    def metric_names(self, run: str) -> list[str]:
        """Returns the names of a run's metrics, in alphabetical order."""
        return self._reader.metric_names(run)

    def points(self, run: str, name: str) -> Iterator[tuple[int, float | None, float]]:
        """Yields (step, value, seconds since the epoch) of a run's metric `name`; streams."""
        return self._reader.points(run, name)

    def metrics(self, run: str) -> Iterator[MetricRow]:
        """Yields a run's metrics, in its order; streams."""
        return self._reader.metrics(run)

    def samples(self, run: str) -> Iterator[MetricRow]:
        """Yields the samples of a run's machine, in their order; streams."""
        return self._reader.samples(run)

    def events(
        self,
        seen: View | None = None,
        *,
        since_s: float = 0.0,
        namespace: str | None = None,
        deleted: bool = False,
    ) -> list[EventView]:
        """Returns the events of an object, of a namespace, or of all, oldest first; deleted: also
        those of objects that are gone.
        """
        if seen is not None:
            lines = self._reader.events(seen.resource.uid, since_s=since_s)
            return [EventView(seen.key, line) for line in lines]
        owners = {
            uid: (object_key(kind, name, within), gone_at_s)
            for uid, kind, name, within, gone_at_s in self._reader.all_keys()
            if (deleted or gone_at_s is None) and namespace in (None, within)
        }
        return [
            EventView(owners[line.uid][0], line, owners[line.uid][1])
            for line in self._reader.events(since_s=since_s)
            if line.uid in owners
        ]

    def notices(self, seen: View | None = None) -> list[NoticeRow]:
        """Returns the notices of an object, or of all, oldest first."""
        return self._reader.notices(None if seen is None else seen.resource.uid)

    def events_of_gone(self, wanted: Target, *, since_s: float = 0.0) -> list[EventView]:
        """Returns the events of all objects that had this name and are gone, oldest first."""
        about = (wanted.kind.name, wanted.name, wanted.namespace)
        return [
            EventView(object_key(wanted.kind.name, shown, wanted.namespace), line, gone_at_s)
            for uid, shown, gone_at_s in list(self._reader.gone(*about))
            for line in self._reader.events(uid, since_s=since_s)
        ]

    def namespaces(self) -> dict[str, dict[str, int]]:
        """Returns the number of objects of each kind, for namespaces in use."""
        found: dict[str, dict[str, int]] = {}
        for name, kind, many in self._reader.namespaces():
            found.setdefault(name, {})[kind] = many
        return found

    def live_prices(self, seen: View, now_s: float) -> LiveRunPrices:
        return self._reader.live_prices(seen.resource.uid, now_s)

    def durations(self, seen: View) -> list[float]:
        """Returns the seconds that its newest tasks took."""
        return self._reader.durations(seen.resource.uid, limit=DURATIONS_MAX)

    def queued(self) -> Iterator[ResourceRow]:
        """Yields the objects that are in queues, of all namespaces; also those being deleted, whose
        runs hold room until they are gone."""
        return (row for row in self._reader.resources() if '"queued"' in row.status)

    def waiting(self) -> Iterator[ResourceRow]:
        """Yields those that wait there."""
        rows = self.queued()
        return (row for row in rows if '"waitingSince"' in row.status and row.deleted_at_s is None)

    def queue(self, name: str) -> View | None:
        row = self._reader.resource("Queue", name, DEFAULT_NAMESPACE)
        if row is None:
            return None
        return self._view(row)

    def durations_in_queue(self, name: str) -> list[float]:
        """Returns the seconds that the newest runs in it took."""
        return self._reader.durations_in_queue(name, limit=DURATIONS_MAX)

    def runs_by_state(self) -> Iterator[tuple[str, str, int, float | None]]:
        """Yields (provider, state, how many, USD a second of the live ones) of all runs."""
        return self._reader.runs_by_state()

    def live_runs(self) -> int:
        return sum(self._reader.live_runs().values())

    def wait_for_change(self, deadline: Deadline | None = None) -> None:
        """Sleeps until the store changed, at most LOOK_EVERY_S, and not beyond the deadline."""
        look = Deadline(LOOK_EVERY_S)
        while (version := self._reader.data_version()) == self._version:
            if look.passed or (deadline is not None and deadline.passed):
                return
            (deadline or look).sleep(POLL_S)
        self._version = version

    def pause(self) -> None:
        """Sleeps for one poll: for callers that wait for more than the store."""
        Deadline(None).sleep(POLL_S)

    def _view(self, row: ResourceRow) -> View:
        def spec() -> str:
            if row.spec is not None:
                return row.spec
            whole = self._reader.resource_of(row.uid)
            return (whole.spec if whole is not None else None) or "{}"

        return build_view(row, spec)


def open_reading(state_dir: Path) -> StoreReading:
    return StoreReading(state_dir)


def must_find(wanted: Target, reading: StoreReading) -> View:
    found = reading.find(wanted)
    if found is None:
        raise make_not_found(wanted, reading)
    return found


def must_find_all(targets: Sequence[Target], reading: StoreReading) -> list[View]:
    """Returns the objects. Raises NotFound that names every missing one."""
    found = [reading.find(one) for one in targets]
    lost = [one for one, seen in zip(targets, found, strict=True) if seen is None]
    if lost:
        raise all_missing(lost, reading)
    return [seen for seen in found if seen is not None]


def all_missing(lost: Sequence[Target], reading: StoreReading) -> NotFound:
    """Returns one error for all missing objects; each has its own hint."""
    errors = [make_not_found(one, reading) for one in lost]
    if len(errors) == 1:
        return errors[0]
    hints = [error.hint if error.hint.startswith("did you") else "" for error in errors]
    lines = [
        f"{error} ({hint})" if hint else str(error)
        for error, hint in zip(errors, hints, strict=True)
    ]
    rest = "" if all(hints) else "`fleetctl get all` lists what there is"
    return NotFound("\nerror: ".join(lines), hint=rest)


def make_not_found(wanted: Target, reading: StoreReading) -> NotFound:
    """Returns the error for a missing object, with the nearest existing name."""
    from fleetctl.common.text import did_you_mean, escape_line

    near_views = reading.views(wanted.kind, namespace=wanted.namespace)
    names = [seen.resource.name for seen in near_views[-NEAR_NAMES_MAX:]]
    near = did_you_mean(wanted.name, names)
    elsewhere = wanted.namespace != DEFAULT_NAMESPACE
    where = f" in namespace `{escape_line(wanted.namespace)}`" if elsewhere else ""
    flag = f" -n {escape_line(wanted.namespace)}" if elsewhere else ""
    return NotFound(
        f"there is no {wanted.kind.name} `{escape_line(wanted.name)}`{where}",
        hint=near or f"`fleetctl get {wanted.kind.plural}{flag}` lists what there is",
    )
