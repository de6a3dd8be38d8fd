"""The async client, written by `make reference` from Fleet; edit the methods there."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, overload

from fleetctl.client.async_base import AsyncFleetBase

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Container, Iterable, Mapping, Sequence
    from datetime import datetime, timedelta
    from pathlib import Path
    from typing import Any, Literal

    from fleetctl.client.fleet_base import Manifests, Rollout
    from fleetctl.client.objects import (
        AppliedObjects,
        FleetEvents,
        FleetObject,
        FleetObjects,
        LogLine,
        MetricReports,
        QueryRows,
        ResultRows,
    )
    from fleetctl.client.plans import FleetPlan, ObjectDiffs, ValidManifests
    from fleetctl.client.reports import ChartKind, CostTable, FleetArtifacts, FleetPlot
    from fleetctl.client.waits import ProgressChoice


class AsyncFleet(AsyncFleetBase):
    """The objects of a state directory, for programs with an event loop."""

    async def apply(
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
        return await self._call(
            partial(
                self._fleet.apply,
                *manifests,
                yes=yes,
                rerun=rerun,
                keep_finished=keep_finished,
                dry_run=dry_run,
                variables=variables,
                rollout=rollout,
                applyset=applyset,
                prune=prune,
                allow_missing=allow_missing,
                wait_for_capacity=wait_for_capacity,
            )
        )

    async def delete(
        self, *keys: str, yes: bool = False, wait: bool = True, timeout_s: float | None = None
    ) -> AppliedObjects:
        """Stops the work of objects such as `job/chunks` and removes them; returns the deleted ones
        when all their parts are gone, or at once if `wait` is false.

        yes: the data of a Volume with `deletionPolicy: Delete` may be lost. A failed deletion stops
        no other: once the others are gone, an error names each object that is left and why;
        NotFound or Refused as the first failure is. Raises TimeoutError after timeout_s.
        """
        return await self._call(
            partial(self._fleet.delete, *keys, yes=yes, wait=wait, timeout_s=timeout_s)
        )

    async def get(self, key: str) -> FleetObject:
        """Returns one object, such as `job/chunks`. Raises NotFound with the nearest name."""
        return await self._call(partial(self._fleet.get, key))

    async def results(self, key: str) -> ResultRows:
        """Returns the results of the units, a row for every unit that has run."""
        return await self._call(partial(self._fleet.results, key))

    async def logs(self, key: str, index: int | None = None) -> AsyncIterator[LogLine]:
        """Yields the output so far of the newest attempt of each unit, or of unit `index`, by
        index; streams. For a cached unit the log of the run whose result it has.
        """
        async for it in self._stream(partial(self._fleet.logs, key, index)):
            yield it

    async def events(
        self, key: str = "", *, since: datetime | timedelta | None = None, warnings: bool = False
    ) -> FleetEvents:
        """Returns the events of an object, or of the namespace, oldest first. since: a moment or a
        span before now; warnings: those of type `Warning` alone.
        """
        return await self._call(partial(self._fleet.events, key, since=since, warnings=warnings))

    async def metrics(self, key: str, name: str = "", *, index: int | None = None) -> MetricReports:
        """Returns the reports of the units' attempts, by unit, attempt and time. name: of one
        metric; index: of one unit.
        """
        return await self._call(partial(self._fleet.metrics, key, name, index=index))

    async def plan(
        self,
        *manifests: Manifests,
        variables: Mapping[str, object] | None = None,
        applyset: str = "",
        prune: bool = False,
        allow_missing: bool = False,
    ) -> FleetPlan:
        """Returns the effect of an apply of these manifests, and its cost; changes nothing.

        variables, applyset, prune, allow_missing: as `apply` has them. Raises ManifestErrors with
        every mistake, and Refused where a policy or the guard of `prune` refuses the apply.
        """
        return await self._call(
            partial(
                self._fleet.plan,
                *manifests,
                variables=variables,
                applyset=applyset,
                prune=prune,
                allow_missing=allow_missing,
            )
        )

    async def diff(
        self,
        *manifests: Manifests,
        variables: Mapping[str, object] | None = None,
        applyset: str = "",
        prune: bool = False,
        allow_missing: bool = False,
    ) -> ObjectDiffs:
        """Returns the difference between these manifests and the stored objects, one for each that
        differs. Takes the options of `plan`, and raises as it does.
        """
        return await self._call(
            partial(
                self._fleet.diff,
                *manifests,
                variables=variables,
                applyset=applyset,
                prune=prune,
                allow_missing=allow_missing,
            )
        )

    async def validate(
        self,
        *manifests: Manifests,
        variables: Mapping[str, object] | None = None,
        allow_missing: bool = False,
    ) -> ValidManifests:
        """Returns the manifests, all of which can be applied. Raises ManifestErrors with every
        mistake, and Refused where a policy denies an object.
        """
        return await self._call(
            partial(
                self._fleet.validate, *manifests, variables=variables, allow_missing=allow_missing
            )
        )

    async def cost(
        self,
        by: str = "job",
        *,
        since: datetime | timedelta | None = None,
        everywhere: bool = False,
    ) -> CostTable:
        """Returns the cost of past and present work by `job`, `kind`, `provider`, `user` or
        `label=KEY`.

        since: a moment or a span before now, for the part of the cost after it; such a table has
        no estimates. everywhere: of all namespaces. Raises UsageError for another `by`.
        """
        return await self._call(partial(self._fleet.cost, by, since=since, everywhere=everywhere))

    async def plot(
        self,
        *keys: str,
        kind: ChartKind | None = None,
        metrics: str | Sequence[str] = (),
        over: Literal["step", "time"] = "step",
        indexes: Container[int] | None = None,
    ) -> FleetPlot:
        """Returns the charts of a sweep, or the curves of the metrics that units reported; several
        objects share a chart.

        kind: of a sweep, this chart alone; `system`: what runs use of their machines. metrics:
        their names; default: the first few. indexes: of these units alone. Raises UsageError for
        objects that run nothing, and NotFound for an object or a metric that is not there.
        """
        return await self._call(
            partial(self._fleet.plot, *keys, kind=kind, metrics=metrics, over=over, indexes=indexes)
        )

    async def artifacts(self, key: str, index: int | None = None) -> FleetArtifacts:
        """Returns the files that are kept of the units, or of unit `index`, by its template's
        `outputs`. Raises NotFound.
        """
        return await self._call(partial(self._fleet.artifacts, key, index))

    async def fetch_artifacts(
        self, key: str, to: str | Path, *, index: int | None = None, path: str = "."
    ) -> list[Path]:
        """Writes the kept files of an object to `to/INDEX/PATH` and returns their paths; those of
        unit `index` to `to/PATH`.

        path: of a file or a directory, for it alone. Raises NotFound where no such file is kept,
        Refused where a link leads out of the directory.
        """
        return await self._call(
            partial(self._fleet.fetch_artifacts, key, to, index=index, path=path)
        )

    async def suspend(self, *keys: str) -> AppliedObjects:
        """Stops the work of objects such as `job/chunks`, and starts none until they are resumed;
        finished units stay finished. Raises NotFound, and Refused for an object that a Source or an
        owner keeps.
        """
        return await self._call(partial(self._fleet.suspend, *keys))

    async def resume(self, *keys: str) -> AppliedObjects:
        """Lets suspended objects go on. Raises as `suspend` does."""
        return await self._call(partial(self._fleet.resume, *keys))

    async def retry(
        self,
        key: str,
        *,
        failed: bool = False,
        indexes: Iterable[int] = (),
        stage: str = "",
        from_stage: str = "",
        every: bool = False,
        only: bool = False,
        yes: bool = False,
    ) -> int:
        """Lets ended units run again; returns how many. Attempts and logs are kept, and no result
        comes from the cache.

        failed: those that failed for good; indexes: these; stage: this one, and those that build on
        it, but with `only`; from_stage: this stage and all after it; every: all that have run. yes:
        stages that build on it run again. Raises UsageError unless exactly one choice is given,
        Refused where `yes` is needed, NotFound.
        """
        return await self._call(
            partial(
                self._fleet.retry,
                key,
                failed=failed,
                indexes=indexes,
                stage=stage,
                from_stage=from_stage,
                every=every,
                only=only,
                yes=yes,
            )
        )

    async def rerun(self, key: str) -> int:
        """Runs all units of an object again, also succeeded ones; returns how many. Raises
        NotFound.
        """
        return await self._call(partial(self._fleet.rerun, key))

    async def scale(
        self, key: str, parallelism: int, *, rollout: Rollout | None = None, yes: bool = False
    ) -> AppliedObjects:
        """Lets so many units run at once; 0 pauses the object. rollout: what becomes of units that
        run beyond that. Raises Refused where running work would be lost and `yes` is not given.
        """
        return await self._call(
            partial(self._fleet.scale, key, parallelism, rollout=rollout, yes=yes)
        )

    async def label(
        self, key: str, labels: Mapping[str, str | None], *, overwrite: bool = False
    ) -> AppliedObjects:
        """Changes labels of a stored object; None removes one. Runs go on. Raises Conflict where a
        label has another value and `overwrite` is not given, UsageError for one that is none.
        """
        return await self._call(partial(self._fleet.label, key, labels, overwrite=overwrite))

    async def annotate(
        self, key: str, annotations: Mapping[str, str | None], *, overwrite: bool = False
    ) -> AppliedObjects:
        """Changes annotations of a stored object, as `label` changes labels."""
        return await self._call(
            partial(self._fleet.annotate, key, annotations, overwrite=overwrite)
        )

    async def create(self, schedule: str, kind: str, name: str = "") -> AppliedObjects:
        """Makes now what a Schedule makes, and returns the new object. kind: of its template; name:
        default: a new one. Raises NotFound, and Conflict for a name that is taken.
        """
        return await self._call(partial(self._fleet.create, schedule, kind, name))

    async def query(
        self, sql: str, parameters: Iterable[object] = (), *, timeout_s: float | None = 60.0
    ) -> QueryRows:
        """Answers a SELECT over past and present work; `fleetctl query --views` lists its views.

        parameters: values for `?` in the query. Reads at most QUERY_ROWS_MAX rows. Raises
        UsageError for a wrong query, and for one that takes longer than timeout_s.
        """
        return await self._call(partial(self._fleet.query, sql, parameters, timeout_s=timeout_s))

    @overload
    async def wait(
        self,
        key: str,
        goal_: str = "complete",
        *,
        timeout_s: float | None = None,
        progress: ProgressChoice = None,
    ) -> FleetObject: ...

    @overload
    async def wait(
        self,
        key: list[str] | tuple[str, ...],
        goal_: str = "complete",
        *,
        timeout_s: float | None = None,
        progress: ProgressChoice = None,
    ) -> FleetObjects: ...

    async def wait(
        self,
        key: str | list[str] | tuple[str, ...],
        goal_: str = "complete",
        *,
        timeout_s: float | None = None,
        progress: ProgressChoice = None,
    ) -> FleetObject | FleetObjects:
        """Blocks until `complete`, `finished`, `failed`, `first-result`, `delete` or
        `condition=NAME` holds for an object, or for each of several.

        Starts a controller if none runs. progress: None updates a display where a notebook runs
        this; True also prints lines elsewhere; a function gets each new state; False shows nothing.
        Raises GoalMissed with the reason when the goal can no longer hold, TimedOut (a
        TimeoutError) after timeout_s, and Conflict where this Fleet applied the object and another
        apply gave it other work since: the error names that change, and waiting once more waits
        for it.
        """
        return await self._call(
            partial(self._fleet.wait, key, goal_, timeout_s=timeout_s, progress=progress)
        )

    async def reconcile(
        self, key: str, *, yes: bool = False, timeout_s: float | None = None
    ) -> FleetObject:
        """Looks at the repository of a Source now, makes its objects equal to it, and returns the
        Source. yes: running work may be lost. Raises GoalMissed where the commit is refused or
        needs `yes`, TimedOut, UsageError for an object that is no Source.
        """
        return await self._call(partial(self._fleet.reconcile, key, yes=yes, timeout_s=timeout_s))

    async def map(
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
        return await self._call(
            partial(self._fleet.map, function, rows, name=name, timeout_s=timeout_s, **options)
        )

    async def list(self, kind: str = "", *, labels: str = "") -> FleetObjects:
        """Returns all of a kind, or of all kinds, oldest first. labels: a selector as `-l` takes
        it."""
        return await self._call(partial(self._fleet.list, kind, labels=labels))

    async def set(
        self,
        key: str,
        fields: Mapping[str, object],
        *,
        rollout: Rollout | None = None,
        yes: bool = False,
    ) -> AppliedObjects:
        """Changes fields of a stored object, such as `{"budget.maxCost": 40}`; None takes a field
        away. Raises UsageError for a wrong field or value, and as `scale` does.
        """
        return await self._call(partial(self._fleet.set, key, fields, rollout=rollout, yes=yes))
