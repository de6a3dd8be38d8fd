"""What runs asked of endpoints, taken into the store: counts of each run, sums of each endpoint,
and USD into the ledger that budgets are counted from. All of one hearing in one transaction, as
totals: what is heard twice, after a crash of either side, is charged once.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from fleetctl.common.errors import StoreError
from fleetctl.controllers.model import Resource
from fleetctl.stores.base import Asked, Calls
from fleetctl.tracking.track import Track, track_of

if TYPE_CHECKING:
    from fleetctl.engine.kinds.endpoints.grants import Grants
    from fleetctl.engine.money.budgets import Budgets
    from fleetctl.engine.money.ledger import Charges
    from fleetctl.engine.shared.state import State

_COUNTS = tuple(it.name for it in fields(Calls))
_TIMES = ("waiting_ms_p50", "waiting_ms_p95", "answer_ms_p50", "answer_ms_p95")


Charged = tuple[Track, float, Resource | None]  # USD; the row with its late status


class Charging:
    def __init__(self, state: State, *, charges: Charges, budgets: Budgets, grants: Grants) -> None:
        self._state, self._charges, self._budgets = state, charges, budgets
        self._grants = grants
        self._reserved: dict[tuple[str, str], tuple[str, float]] = {}  # run, endpoint -> uid, USD

    def hear(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Raises StoreError; then nothing of it was taken in."""
        names = {(row["endpoint"], row["namespace"]) for row in rows}
        uids = {name: self._endpoint(*name) for name in names}
        asked = [_asked(row, uids[row["endpoint"], row["namespace"]]) for row in rows]
        state, owners = self._state, [str(row.get("uid") or "") for row in rows]
        risen: dict[str, float] = defaultdict(float)  # USD by uid
        try:
            with state.store.transaction():
                for uid, usd in zip(owners, state.store.calls.keep(asked), strict=True):
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
            self._grants.heard(uid, usd)
        for uid in {*owners, *(it.endpoint_uid for it in asked if it.endpoint_uid)}:
            if uid in state.tracks:
                state.poke(uid)

    def _endpoint(self, name: str, namespace: str) -> str:
        """Its uid; empty for one that is gone."""
        found = self._state.store.resources.get("Endpoint", name, namespace)
        return found.uid if found is not None else ""

    def _charge(self, uid: str, usd: float) -> Charged | None:
        """What the store is to know; None where nothing was spent, or of nobody who is there."""
        track = self._state.tracks.get(uid) or self._sleeping(uid)
        if track is None or not usd:
            return None
        self._charges.add(track, usd, 0.0)
        return track, usd, self._write_late(track, usd) if track.dormant else None

    def _take(self, track: Track, usd: float, late: Resource | None) -> None:
        """What memory is to know, once it is stored."""
        if track.work is not None:
            track.work.history.called(usd)
        if late is not None:
            track.resource, track.status = late, json.loads(late.status)
        for account in self._budgets.shared(track.resource):
            account.charged_usd += usd

    def _sleeping(self, uid: str) -> Track | None:
        """Of an object that is over, whose last calls are heard of now."""
        row = self._state.store.resources.of(uid)
        return track_of(row) if row is not None else None

    def _write_late(self, track: Track, usd: float) -> Resource | None:
        """The row of an object that is over, whose status no pass writes any more; None where a
        spec was written in between: then a pass writes it all.
        """
        cost, budget = track.status.get("cost"), track.status.get("budget")
        status = dict(track.status)
        if isinstance(cost, dict):
            status["cost"] = _with(cost, actual=usd, calls=usd)
        if isinstance(budget, dict):
            status["budget"] = _with(budget, used=usd, left=-usd)
        text, row = json.dumps(status, separators=(",", ":")), track.resource
        version = self._state.store.resources.put_status(
            row.uid, text, expected_version=row.version
        )
        return None if version is None else replace(row, version=version, status=text)

    def _reserve(self, row: Mapping[str, Any], uid: str) -> None:
        """What calls under way may cost at worst counts as what live runs may."""
        key = str(row["run"]), str(row["endpoint"])
        reserved_usd = float(row.get("reserved_usd") or 0.0)
        _, before_usd = self._reserved.pop(key, (uid, 0.0))
        if reserved_usd:
            self._reserved[key] = uid, reserved_usd
        calling = self._state.calling_usd
        calling[uid] = max(0.0, calling.get(uid, 0.0) + reserved_usd - before_usd)
        if not any(owner == uid for owner, _ in self._reserved.values()):
            calling.pop(uid, None)


def _with(block: Mapping[str, Any], **more: float) -> dict[str, Any]:
    """The same with so much more of each."""
    known = {key: block.get(key) or 0.0 for key in more}
    return {**block, **{key: round(max(0.0, known[key] + more[key]), 6) for key in more}}


def _asked(row: Mapping[str, Any], endpoint_uid: str) -> Asked:
    total = Calls(**{name: row.get(name) or 0 for name in _COUNTS})
    first, *others = (row.get(name) for name in _TIMES)
    return Asked(row["run"], row["endpoint"], endpoint_uid, total, (first, *others))  # type: ignore[arg-type]
