"""Requests of a Fleet that change stored objects or ask about them, beside apply and wait."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping
from itertools import islice

from fleetctl.client.fleet_base import FleetBase, Rollout
from fleetctl.client.objects import AppliedObject, AppliedObjects, QueryRows, parse_applied
from fleetctl.common.errors import Conflict, UsageError
from fleetctl.daemon.client.socket_client import results_of
from fleetctl.views.kinds import kind_of
from fleetctl.views.spending import open_asking
from fleetctl.views.store_reading import must_find, open_reading

QUERY_ROWS_MAX = 1_000_000


class FleetRequests(FleetBase):
    """The methods of a Fleet that need no manifests."""

    def suspend(self, *keys: str) -> AppliedObjects:
        """Stops the work of objects such as `job/chunks`, and starts none until they are resumed;
        finished units stay finished. Raises NotFound, and Refused for an object that a Source or an
        owner keeps.
        """
        return self._send_each("suspend", keys)

    def resume(self, *keys: str) -> AppliedObjects:
        """Lets suspended objects go on. Raises as `suspend` does."""
        return self._send_each("resume", keys)

    def retry(
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
        numbers = sorted(set(indexes))
        chosen = {
            "failed": failed,
            "index": bool(numbers or stage),
            "from": bool(from_stage),
            "all": every,
        }
        which = [word for word, given in chosen.items() if given]
        if len(which) != 1 or (numbers and stage):
            raise UsageError(
                "say which units run again: one of failed, indexes, stage, from_stage and every",
                hint=f"fleet.retry({key!r}, failed=True)",
            )
        message: dict[str, object] = {"which": which[0], "yes": yes}
        if numbers:
            message["indexes"] = [[number, number] for number in numbers]
        if stage or from_stage:
            message["names"] = [stage or from_stage]
        return self._send_retry(key, {**message, **({"only": True} if only else {})})

    def rerun(self, key: str) -> int:
        """Runs all units of an object again, also succeeded ones; returns how many. Raises
        NotFound.
        """
        return self._send_retry(key, {"which": "rerun"})

    def scale(
        self,
        key: str,
        parallelism: int,
        *,
        rollout: Rollout | None = None,
        yes: bool = False,
    ) -> AppliedObjects:
        """Lets so many units run at once; 0 pauses the object. rollout: what becomes of units that
        run beyond that. Raises Refused where running work would be lost and `yes` is not given.
        """
        return self.set(key, {"parallelism": parallelism}, rollout=rollout, yes=yes)

    def set(
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
        target = self._target(key)
        self._must_find(target)
        texts = [f"{path}={json.dumps(value)}" for path, value in fields.items()]
        message = {"verb": "set", "key": target.key, "fields": texts, "yes": yes}
        if rollout is not None:
            message["rollout"] = rollout
        return AppliedObjects(map(parse_applied, results_of(self._send_request(message))))

    def label(
        self,
        key: str,
        labels: Mapping[str, str | None],
        *,
        overwrite: bool = False,
    ) -> AppliedObjects:
        """Changes labels of a stored object; None removes one. Runs go on. Raises Conflict where a
        label has another value and `overwrite` is not given, UsageError for one that is none.
        """
        return self._send_texts(key, "labels", labels, overwrite=overwrite)

    def annotate(
        self,
        key: str,
        annotations: Mapping[str, str | None],
        *,
        overwrite: bool = False,
    ) -> AppliedObjects:
        """Changes annotations of a stored object, as `label` changes labels."""
        return self._send_texts(key, "annotations", annotations, overwrite=overwrite)

    def create(
        self,
        schedule: str,
        kind: str,
        name: str = "",
    ) -> AppliedObjects:
        """Makes now what a Schedule makes, and returns the new object. kind: of its template; name:
        default: a new one. Raises NotFound, and Conflict for a name that is taken.
        """
        request = {
            "verb": "create",
            "from": self._target(schedule).key,
            "kind": kind_of(kind).name,
            "name": name,
        }
        return AppliedObjects(
            AppliedObject(str(it.get("key")), "created", "")
            for it in results_of(self._send_request(request))
        )

    def query(
        self,
        sql: str,
        parameters: Iterable[object] = (),
        *,
        timeout_s: float | None = 60.0,
    ) -> QueryRows:
        """Answers a SELECT over past and present work; `fleetctl query --views` lists its views.

        parameters: values for `?` in the query. Reads at most QUERY_ROWS_MAX rows. Raises
        UsageError for a wrong query, and for one that takes longer than timeout_s.
        """
        with open_asking(self.home, timeout_s=timeout_s) as asking:
            answer = asking.ask(sql, tuple(parameters))
            return QueryRows(answer.columns, islice(answer.rows, QUERY_ROWS_MAX))

    # -- parts -------------------------------------------------------------------------------------

    def _send_each(self, verb: str, keys: Iterable[str]) -> AppliedObjects:
        targets = [self._target(key) for key in keys]
        for target in targets:
            if not target.kind.suspends:
                raise UsageError(f"{target.key} runs nothing, so there is nothing to {verb}")
        if not targets:
            return AppliedObjects()
        self._must_find(*targets)
        request = {"verb": verb, "keys": [it.key for it in targets]}
        return AppliedObjects(map(parse_applied, results_of(self._send_request(request))))

    def _send_retry(self, key: str, message: Mapping[str, object]) -> int:
        target = self._target(key)
        if not target.kind.runs:
            raise UsageError(f"{target.key} runs nothing, so nothing of it runs again")
        self._must_find(target)
        # A name of this request, so that repeating it has no second effect.
        request = {"verb": "retry", "request": secrets.token_hex(8), "keys": [target.key]}
        (result,) = results_of(self._send_request({**request, **message}))
        units = result.get("units")
        if isinstance(units, int):
            return units
        return 0

    def _send_texts(
        self,
        key: str,
        noun: str,
        changes: Mapping[str, str | None],
        *,
        overwrite: bool,
    ) -> AppliedObjects:
        with open_reading(self.home) as reading:
            seen = must_find(self._target(key), reading)
        before = seen.resource.labels if noun == "labels" else seen.resource.annotations
        others = [
            f"{name}={before[name]}"
            for name, value in changes.items()
            if value is not None and before.get(name, value) != value
        ]
        if others and not overwrite:
            text = f"{seen.key} has {', '.join(others)} already"
            raise Conflict(text, hint="overwrite=True")
        message = {"verb": "set", "key": seen.key, noun: dict(changes)}
        return AppliedObjects(map(parse_applied, results_of(self._send_request(message))))
