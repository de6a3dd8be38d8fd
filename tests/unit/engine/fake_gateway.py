"""A gateway without a process: it keeps endpoints and grants, and counts the calls that tests make.
Its ledger outlives its life, as the real one's does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fleetctl.common.errors import Unavailable
from fleetctl.gateway.gateway_client import EndpointConfig, EndpointGrant, SharedCap


class FakeGateway:
    def __init__(self) -> None:
        self.away = False
        self.begun_anew = True  # since it was last asked whether it is up
        self.served: list[EndpointConfig] = []
        self.grants: dict[str, EndpointGrant] = {}
        self.caps: Sequence[SharedCap] = ()
        self.sick: dict[str, str] = {}  # name of an endpoint -> what is wrong with its server
        self.rows: dict[tuple[str, str], dict[str, Any]] = {}  # the ledger
        self.seq = 0
        self.looks = 0  # how often somebody asked how the endpoints stand

    def kill(self) -> None:
        """What was under way is charged with its worst case when it is up again."""
        self.served, self.grants, self.caps, self.begun_anew = [], {}, (), True
        for row in self.rows.values():
            if row["reserved_usd"]:
                self._change(row, usd=row["usd"] + row["reserved_usd"], reserved_usd=0.0)

    def _change(self, row: dict[str, Any], **values: float) -> None:
        self.seq += 1
        row |= {**values, "seq": self.seq}

    def ask(
        self,
        run: str,
        *,
        usd: float = 0.0,
        reserved_usd: float = 0.0,
        calls: int = 1,
        tries: int = 1,
    ) -> bool:
        """Returns whether it may; counted as the real one counts it."""
        grant = self.grants.get(run)
        if grant is None:
            return False
        more_usd = usd + reserved_usd
        for cap in self.caps:
            if grant.uid in cap.uids and cap.total_usd(self.total_usd) + more_usd > cap.usd + 1e-9:
                return False
        key = run, grant.endpoints[0]
        row = self.rows.setdefault(
            key,
            {
                "run": run,
                "uid": grant.uid,
                "endpoint": grant.endpoints[0],
                "namespace": grant.namespace,
                "calls": 0,
                "tries": 0,
                "usd": 0.0,
                "reserved_usd": 0.0,
            },
        )
        row["calls"] += calls
        row["tries"] += tries
        self._change(row, usd=row["usd"] + usd, reserved_usd=row["reserved_usd"] + reserved_usd)
        return True

    def settle(self, run: str, usd: float) -> None:
        """The calls of a run that were under way are over, and came to so much."""
        (row,) = (it for it in self.rows.values() if it["run"] == run)
        self._change(row, usd=row["usd"] + usd, reserved_usd=0.0)

    def total_usd(self, uid: str) -> float:
        return sum(it["usd"] + it["reserved_usd"] for it in self.rows.values() if it["uid"] == uid)

    # -- what the engine calls ---------------------------------------------------------------------

    async def up(self) -> bool:
        self._must_answer()
        anew, self.begun_anew = self.begun_anew, False
        return anew

    async def serve(self, endpoints: Sequence[EndpointConfig]) -> None:
        self._must_answer()
        self.served = list(endpoints)

    async def grant(
        self, grants: Sequence[EndpointGrant], caps: Sequence[SharedCap]
    ) -> Mapping[str, float]:
        self._must_answer()
        self.grants, self.caps = {it.run: it for it in grants}, tuple(caps)
        uids = {it.uid for it in grants}.union(*(it.uids for it in caps))
        return {uid: self.total_usd(uid) for uid in uids}

    async def usage(self, after: int, *, wait_s: float) -> tuple[int, Sequence[Mapping[str, Any]]]:
        self._must_answer()
        return self.seq, [dict(it) for it in self.rows.values() if it["seq"] > after]

    async def health(self, *, max_age_s: float) -> Sequence[Mapping[str, Any]]:
        self._must_answer()
        self.looks += 1
        return [
            {
                "name": it.name,
                "namespace": it.namespace,
                "ready": it.name not in self.sick,
                "reason": "ServerUnreachable" if it.name in self.sick else "Ready",
                "message": self.sick.get(it.name, ""),
                "hint": "start the server" if it.name in self.sick else "",
                "servers": [
                    {"url": "http://a", "state": "Ready", "in_flight": self.looks, "slots": 4}
                ],
                "concurrency": 4,
                "queue": 2,
            }
            for it in self.served
        ]

    def access(self, run: str) -> tuple[str, str]:
        return "http://127.0.0.1:1", f"token-of-{run}"

    async def close(self, *, leave: bool) -> None:
        pass

    def _must_answer(self) -> None:
        if self.away:
            raise Unavailable("the gateway does not answer", reason="EndpointNotReady")
