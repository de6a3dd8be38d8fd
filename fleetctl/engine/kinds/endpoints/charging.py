"""Stores the runs' usage of endpoints: counts of each run, sums of each endpoint, and USD into the
ledger that budgets are counted from. One report in one transaction, as totals: a report that is
received twice, after a crash of either side, is charged once.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from fleetctl.common.errors import StoreError
from fleetctl.controllers.model import Resource
from fleetctl.stores.base import CallSums, EndpointUsage
from fleetctl.tracking.track import Track, track_of

if TYPE_CHECKING:
    from fleetctl.engine.kinds.endpoints.grants import EndpointGrants
    from fleetctl.engine.money.budgets import Budgets
    from fleetctl.engine.money.ledger import RunCharges
    from fleetctl.engine.shared.engine_state import EngineState

_COUNTS = tuple(it.name for it in fields(CallSums))
_TIMES = ("waiting_ms_p50", "waiting_ms_p95", "answer_ms_p50", "answer_ms_p95")


Charged = tuple[Track, float, Resource | None]  # USD; the row with its late status


class EndpointCharges:
    def __init__(
        self,
        state: EngineState,
        *,
        charges: RunCharges,
        budgets: Budgets,
        grants: EndpointGrants,
    ) -> None:
        self._state = state
        self._charges = charges
        self._budgets = budgets
        self._grants = grants
        self._reserved: dict[tuple[str, str], tuple[str, float]] = {}  # run, endpoint -> uid, USD

    def hear(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Stores a report. Raises StoreError; then none of its rows was stored."""
        names = {(row["endpoint"], row["namespace"]) for row in rows}
        uids = {name: self._endpoint(*name) for name in names}
        asked = [_read_usage(row, uids[row["endpoint"], row["namespace"]]) for row in rows]
        state = self._state
        owners = [str(row.get("uid") or "") for row in rows]
        risen: dict[str, float] = defaultdict(float)  # USD by uid
        try:
            with state.store.transaction():
                for uid, usd in zip(owners, state.store.calls.record(asked), strict=True):
                    risen[uid] += usd
                charged = [it for uid, usd in risen.items() if (it := self._charge(uid, usd))]
                self._charges.write()
        except StoreError:
            self._charges.load()  # as it was before
            raise
        for track, usd, late in charged:
            self._take(track, usd, late)
        for row, uid in zip(rows, owners, strict=True):
            self._reserve(row, uid)
        for uid, usd in risen.items():
            self._grants.add_spent(uid, usd)
        for uid in {*owners, *(it.endpoint_uid for it in asked if it.endpoint_uid)}:
            if uid in state.tracks:
                state.poke(uid)

    def _endpoint(self, name: str, namespace: str) -> str:
        """Its uid; empty for one that is gone."""
        found = self._state.store.resources.get("Endpoint", name, namespace)
        if found is not None:
            return found.uid
        return ""

    def _charge(self, uid: str, usd: float) -> Charged | None:
        """Returns the charge to store; None where the cost is zero, or the object does not
        exist.
        """
        track = self._state.tracks.get(uid) or self._sleeping(uid)
        if track is None or not usd:
            return None
        self._charges.add(track, usd, 0.0)
        return track, usd, self._write_late(track, usd) if track.dormant else None

    def _take(
        self,
        track: Track,
        usd: float,
        late: Resource | None,
    ) -> None:
        """Updates the state in memory, once the charge is stored."""
        if track.work is not None:
            track.work.history.called(usd)
        if late is not None:
            track.resource, track.status = late, json.loads(late.status)
        for account in self._budgets.shared(track.resource):
            account.charged_usd += usd

    def _sleeping(self, uid: str) -> Track | None:
        """Returns the track of a finished object whose last calls are reported now."""
        row = self._state.store.resources.of(uid)
        if row is not None:
            return track_of(row)
        return None

    def _write_late(self, track: Track, usd: float) -> Resource | None:
        """Writes the row of a finished object, whose status no pass writes any more; None where a
        spec was written in between: then a pass writes it all.
        """
        cost = track.status.get("cost")
        budget = track.status.get("budget")
        status = dict(track.status)
        if isinstance(cost, dict):
            status["cost"] = _add_amounts(cost, actual=usd, calls=usd)
        if isinstance(budget, dict):
            status["budget"] = _add_amounts(budget, used=usd, left=-usd)
        text = json.dumps(status, separators=(",", ":"))
        row = track.resource
        version = self._state.store.resources.put_status(
            row.uid, text, expected_version=row.version
        )
        if version is None:
            return None
        return replace(row, version=version, status=text)

    def _reserve(self, row: Mapping[str, Any], uid: str) -> None:
        """Reserves the worst-case cost of calls under way, as for live runs."""
        key = str(row["run"]), str(row["endpoint"])
        reserved_usd = float(row.get("reserved_usd") or 0.0)
        _, before_usd = self._reserved.pop(key, (uid, 0.0))
        if reserved_usd:
            self._reserved[key] = uid, reserved_usd
        calling = self._state.calling_usd
        calling[uid] = max(0.0, calling.get(uid, 0.0) + reserved_usd - before_usd)
        if not any(owner == uid for owner, _ in self._reserved.values()):
            calling.pop(uid, None)


def _add_amounts(block: Mapping[str, Any], **more: float) -> dict[str, Any]:
    """Returns the block with these amounts added."""
    known = {key: block.get(key) or 0.0 for key in more}
    return {**block, **{key: round(max(0.0, known[key] + more[key]), 6) for key in more}}


def _read_usage(row: Mapping[str, Any], endpoint_uid: str) -> EndpointUsage:
    total = CallSums(**{name: row.get(name) or 0 for name in _COUNTS})
    first, *others = (row.get(name) for name in _TIMES)
    return EndpointUsage(row["run"], row["endpoint"], endpoint_uid, total, (first, *others))  # type: ignore[arg-type]
