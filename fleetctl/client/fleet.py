"""A fleet: the objects of a state directory, from Python. The command line does the same.

All methods are synchronous and may be called from a notebook, whose event loop they leave alone.
Errors are those of `fleetctl.common.errors`, with a `hint`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from typing import Any

from fleetctl.client.calls import (
    CallOptions,
    build_job,
    error_of,
    find_import_path,
    job_name,
)
from fleetctl.client.fleet_base import Manifests, Rollout, collect_documents, describe_keys
from fleetctl.client.objects import (
    AppliedObject,
    AppliedObjects,
    FleetEvents,
    FleetObject,
    FleetObjects,
    LogLine,
    MetricReport,
    MetricReports,
    ResultRows,
    event_of,
    object_of,
    parse_applied,
    row_of,
)
from fleetctl.client.plans import FleetPlans
from fleetctl.client.reports import FleetReports, seconds_of
from fleetctl.client.requests import FleetRequests
from fleetctl.client.waits import FleetWaits
from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import FleetctlError, NotFound, Refused
from fleetctl.daemon.client.socket_client import results_of
from fleetctl.views.documents import result_rows
from fleetctl.views.kinds import kind_of
from fleetctl.views.objects import DELETING, View, as_mapping
from fleetctl.views.run_files import read_bytes
from fleetctl.views.selectors import matches_labels, parse_selector
from fleetctl.views.store_reading import StoreReading, make_not_found, must_find, open_reading
from fleetctl.views.tasks import CACHED, Task

_SUCCEEDED = ("Succeeded", CACHED)
_ENDED = (*_SUCCEEDED, "Failed", "Cancelled", "Refused", "Stopped")

Deletable = tuple[list[View], list[FleetctlError]]


class Fleet(FleetPlans, FleetReports, FleetRequests, FleetWaits):
    """The objects of a state directory. home: its path, as `$FLEETCTL_HOME`; None for that of the
    command line."""

    # -- changing ----------------------------------------------------------------------------------

    def apply(
        self,
        *manifests: Manifests,
        yes: bool = False,
        rerun: bool = False,
        keep_finished: bool = False,
        dry_run: bool = False,
        variables: Mapping[str, object] | None = None,
        rollout: Rollout | None = None,
        applyset: str = "",
        prune: bool = False,
        allow_missing: bool = False,
        wait_for_capacity: bool = False,
    ) -> AppliedObjects:
        """Makes the world look like these manifests: models, texts, or paths of files and
        directories. Applying equal ones twice changes nothing.

        yes: running work or data may be lost. rerun: repeats all units. keep_finished: finished
        tasks count though their content changed. dry_run: returns the changes, and stores no
        object. variables: values of the declared variables. rollout: what becomes of running units.
        applyset: makes the objects part of this set; prune: deletes objects of the set that are in
        no manifest. allow_missing, wait_for_capacity: stores work that has to wait for an object or
        for a machine; `warnings` of the returned list has sentences on them. Raises Refused where
        `yes` is needed, UsageError with every error in any manifest.
        """
        fields = {
            "yes": yes,
            "rerun": rerun,
            "keepFinished": keep_finished,
            "dryRun": dry_run,
            "rollout": rollout,
            "applyset": applyset,
            "prune": prune,
            "allowMissing": allow_missing,
            "waitForCapacity": wait_for_capacity,
        }
        documents = collect_documents(manifests, variables)
        reply = self._send_request(
            {
                "verb": "apply",
                "tellWork": True,
                "documents": [it._asdict() for it in documents],
                **{name: it for name, it in fields.items() if it},
                **self._namespaced(),
            }
        )
        if not dry_run:
            self._works |= as_mapping(reply.get("works"))
        applied = AppliedObjects(map(parse_applied, results_of(reply)))
        warnings = reply.get("warnings")
        applied.warnings = tuple(map(str, warnings)) if isinstance(warnings, list) else ()
        return applied

    def delete(
        self,
        *keys: str,
        yes: bool = False,
        wait: bool = True,
        timeout_s: float | None = None,
    ) -> AppliedObjects:
        """Stops the work of objects such as `job/chunks` and removes them; returns the deleted ones
        when all their parts are gone, or at once if `wait` is false.

        yes: the data of a Volume with `deletionPolicy: Delete` may be lost. A failed deletion stops
        no other: once the others are gone, an error names each object that is left and why;
        NotFound or Refused as the first failure is. Raises TimeoutError after timeout_s.
        """
        with open_reading(self.home) as reading:
            views, problems = self._deletable(keys, reading, yes=yes)
            living = [seen.key for seen in views if seen.phase != DELETING]
            request = {"verb": "delete", "keys": living, "each": True}
            results = results_of(self._send_request(request)) if living else []
            failed = {
                str(it["key"]): _build_error(it) for it in results if it["outcome"] != "deleted"
            }
            problems += failed.values()
            pending = {it.resource.uid: it.key for it in views if it.key not in failed}
            done = list(pending.values())
            if wait and pending:
                left = describe_keys(pending.values())
                self._until(reading, lambda: _all_gone(pending, reading), timeout_s, left)
        if problems:
            raise _join_errors(problems, done)
        said = {it.key: it for it in map(parse_applied, results)}
        return AppliedObjects(said.get(key) or AppliedObject(key, "deleted", "") for key in done)

    def map(
        self,
        function: Callable[..., Any],
        rows: Iterable[Any],
        *,
        name: str = "",
        timeout_s: float | None = None,
        **options: Any,
    ) -> list[Any]:
        """Calls the function for each row as a task of a single BatchJob; returns its results, in
        the order of the rows.

        rows: mappings of arguments by name, or single arguments. name: of the object; default: a
        new one, so that all calls are repeated. timeout_s: how long to wait. options: fields of
        CallOptions, such as `on="modal"`, `gpu="A100"`, `image=`, `parallelism=`. Raises the
        exception of the first failed call, UsageError for a function without an import path and for
        arguments that JSON cannot hold, TimeoutError after timeout_s.
        """
        calls = [((), row) if isinstance(row, Mapping) else ((row,), {}) for row in rows]
        if not calls:
            return []
        chosen = CallOptions(**options)
        path = find_import_path(function, chosen.source)
        job = build_job(name or job_name(function), path, calls, chosen)
        futures: list[Future[Any]] = [Future() for _ in calls]
        self.start_calls(job, futures, timeout_s=timeout_s)
        return [it.result() for it in futures]

    def start_calls(
        self,
        job: Mapping[str, Any],
        futures: Sequence[Future[Any]],
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Applies a job of calls, and blocks until each future has its outcome. Raises as `map`
        does, without the exceptions of calls.
        """
        key = f"batchjob/{job['metadata']['name']}"
        self.apply(json.dumps(job, indent=2) + "\n")
        with open_reading(self.home) as reading:
            uid = must_find(self._target(key), reading).resource.uid
            taking = _Outcomes(uid, futures)
            self._until(reading, lambda: taking.take(reading), timeout_s, describe_keys([key]))

    # -- reading -----------------------------------------------------------------------------------

    def get(self, key: str) -> FleetObject:
        """Returns one object, such as `job/chunks`. Raises NotFound with the nearest name."""
        with open_reading(self.home) as reading:
            return object_of(must_find(self._target(key), reading), SystemClock().now_s())

    def list(self, kind: str = "", *, labels: str = "") -> FleetObjects:
        """Returns all of a kind, or of all kinds, oldest first. labels: a selector as `-l` takes
        it."""
        terms = parse_selector(labels) if labels else ()
        now_s = SystemClock().now_s()
        with open_reading(self.home) as reading:
            found = reading.views(kind_of(kind) if kind else None, namespace=self.namespace)
            chosen = [it for it in found if matches_labels(it.resource.labels, terms)]
            return FleetObjects(object_of(it, now_s) for it in chosen)

    def results(self, key: str) -> ResultRows:
        """Returns the results of the units, a row for every unit that has run."""
        with open_reading(self.home) as reading:
            seen = must_find(self._target(key), reading)
            return ResultRows([row_of(row) for row in result_rows(seen, reading)])

    def logs(self, key: str, index: int | None = None) -> Iterator[LogLine]:
        """Yields the output so far of the newest attempt of each unit, or of unit `index`, by
        index; streams. For a cached unit the log of the run whose result it has.
        """
        with open_reading(self.home) as reading:
            seen = must_find(self._target(key), reading)
            for task in reading.tasks(seen, index=index):
                yield from self._lines(seen, task, reading)

    def events(
        self,
        key: str = "",
        *,
        since: datetime | timedelta | None = None,
        warnings: bool = False,
    ) -> FleetEvents:
        """Returns the events of an object, or of the namespace, oldest first. since: a moment or a
        span before now; warnings: those of type `Warning` alone.
        """
        since_s = seconds_of(since)
        with open_reading(self.home) as reading:
            seen = must_find(self._target(key), reading) if key else None
            found = map(event_of, reading.events(seen, namespace=self.namespace))
            return FleetEvents(
                it
                for it in found
                if (since_s is None or it.at.timestamp() >= since_s)
                and not (warnings and it.type != "Warning")
            )

    def metrics(
        self,
        key: str,
        name: str = "",
        *,
        index: int | None = None,
    ) -> MetricReports:
        """Returns the reports of the units' attempts, by unit, attempt and time. name: of one
        metric; index: of one unit.
        """
        with open_reading(self.home) as reading:
            seen = must_find(self._target(key), reading)
            return MetricReports(
                MetricReport(
                    task.run.index, task.run.attempt, it.name, it.step, it.value,
                    datetime.fromtimestamp(it.at_s, UTC),
                )
                for task in reading.attempts(seen)
                if index in (None, task.run.index)
                for it in reading.metrics(task.run.name)
                if name in ("", it.name)
            )  # fmt: skip

    # -- parts -------------------------------------------------------------------------------------

    def _deletable(
        self,
        keys: Sequence[str],
        reading: StoreReading,
        *,
        yes: bool,
    ) -> Deletable:
        """Returns the objects that may be deleted, each once, and an error for each key of
        another."""
        found: dict[str, View] = {}
        problems: list[FleetctlError] = []
        for wanted in map(self._target, keys):
            seen = reading.find(wanted)
            if seen is None:
                problems.append(make_not_found(wanted, reading))
            elif not yes and seen.spec().get("deletionPolicy") == "Delete":
                text = f"{seen.key}: deleting it deletes its data"
                problems.append(Refused(text, hint="yes=True"))
            else:
                found[seen.resource.uid] = seen
        return list(found.values()), problems

    def _lines(
        self,
        seen: View,
        task: Task,
        reading: StoreReading,
    ) -> Iterator[LogLine]:
        uid = seen.resource.uid
        run = task.run
        if task.state == CACHED:
            found = reading.source_of(run)
            if found is None:
                return
            uid, _, run = found
        rest = b""
        for data, _ in read_bytes(self.home, uid, run, 0):
            *whole, rest = (rest + data).split(b"\n")
            for line in whole:
                yield LogLine(task.run.index, run.attempt, line.decode("utf-8", "replace"))
        if rest:
            yield LogLine(task.run.index, run.attempt, rest.decode("utf-8", "replace"))


class _Outcomes:
    """Gives each future the outcome of its task, as soon as that has ended."""

    def __init__(self, uid: str, futures: Sequence[Future[Any]]) -> None:
        self._uid = uid
        self._left = dict(enumerate(futures))
        self._version = -1

    def take(self, reading: StoreReading) -> bool:
        """Settles the finished ones; returns True when all are settled."""
        seen = reading.by_uid(self._uid)
        if seen is None:
            self._fail_all(NotFound("the job of this call was deleted", hint="call it again"))
            return True
        if not seen.current or (seen.resource.version == self._version and not seen.over):
            return False
        self._version = seen.resource.version
        for task in reading.tasks(seen, results=True):
            if task.state in _ENDED and task.run.index in self._left:
                self._settle(self._left.pop(task.run.index), task)
        if self._left and seen.over:
            hint = f"fleetctl describe {seen.key}"
            text = f"{seen.key} ended without it: {seen.text('message')}"
            self._fail_all(Refused(text, hint=hint))
        return not self._left

    def _settle(self, future: Future[Any], task: Task) -> None:
        if task.state in _SUCCEEDED:
            result = json.loads(task.result or "{}")
            future.set_result(result.get("value"))
        else:
            error = error_of(task.run.reason, task.run.message)
            if task.run.hint:
                error.add_note(f"hint: {task.run.hint}")
            future.set_exception(error)

    def _fail_all(self, error: FleetctlError) -> None:
        for future in self._left.values():
            future.set_exception(error)
        self._left.clear()


def _build_error(result: Mapping[str, object]) -> FleetctlError:
    """Returns the error for an object that the controller did not delete."""
    sort = NotFound if result.get("outcome") == "missing" else Refused
    return sort(str(result.get("message")), hint=str(result.get("hint") or ""))


def _join_errors(problems: Sequence[FleetctlError], done: Sequence[str]) -> FleetctlError:
    """Returns one error for all objects that are left, which names those that are gone, too."""
    first = problems[0]
    if len(problems) == 1 and not done:
        return first
    lines = [f"{it} ({it.hint})" if it.hint else str(it) for it in problems]
    if done:
        lines.append(f"deleted all the same: {', '.join(done)}")
    return type(first)("; ".join(lines))


def _all_gone(pending: dict[str, str], reading: StoreReading) -> bool:
    for uid in [uid for uid in pending if reading.by_uid(uid) is None]:
        del pending[uid]
    return not pending
