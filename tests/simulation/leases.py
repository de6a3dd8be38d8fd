"""Two operators and one Lease in virtual time: the real Elector, before a model of an API server
that loses requests and replies, answers late, and is cut off from one of them for a while.

Each candidate has a clock of its own speed, and acts ten times a second for as long as it believes
that it leads. `violations` is what must be empty.
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, field
from random import Random
from typing import Any

from fleetctl.common.errors import Unavailable
from fleetctl.common.event_loop import cancel_tasks
from fleetctl.kubernetes.answers import ApiError
from fleetctl.operator.elector import Elector, times_of
from tests.simulation.loop import Timeline, VirtualLoop

LIVES_S = 400.0
ACT_S = 0.1
AGAIN_S = 30.0  # a lease runs out, and is seen to have; or a process begins anew
# Clocks of two machines differ by parts in ten thousand; these by far more.
DRIFT = 0.02


@dataclass
class LeaseServer:
    """One Lease, linearisable. lease: None while there is none. checks: whether a write of an old
    resourceVersion is refused, as a real one does.
    """

    rng: Random
    timeline: Timeline
    lease: dict[str, Any] | None = None
    version: int = 0
    cut: dict[str, float] = field(default_factory=dict)  # who is cut off until when
    faults_until_s: float = LIVES_S / 2
    checks: bool = True

    async def request(self, who: str, method: str, body: Any, deadline_s: float) -> Any:
        """As Connection.request with one try."""
        fate = self.rng.random() if self.timeline.now_s < self.faults_until_s else 1.0
        if fate < 0.02:
            self.cut[who] = self.timeline.now_s + self.rng.uniform(1, 60)
        if self.cut.get(who, 0.0) > self.timeline.now_s:
            if self.rng.random() < 0.5:  # refused at once, or nothing at all
                raise Unavailable("refused")
            await asyncio.sleep(deadline_s)
            raise Unavailable("silence", perhaps_made=True)
        await asyncio.sleep(self.rng.uniform(0, 0.05 if fate > 0.1 else deadline_s))
        answer = self._answer(method, body)
        if fate < 0.06:
            await asyncio.sleep(deadline_s)
            raise Unavailable("the reply is lost", perhaps_made=True)
        return answer

    def _answer(self, method: str, body: Any) -> Any:
        if method == "GET":
            if self.lease is None:
                raise ApiError(404, "NotFound", "not found")
            return self.lease
        if method == "POST" and self.lease is not None:
            raise ApiError(409, "AlreadyExists", "exists")
        if method == "PUT":
            assert self.lease is not None
            known = self.lease["metadata"]["resourceVersion"]
            if self.checks and body["metadata"]["resourceVersion"] != known:
                raise ApiError(409, "Conflict", "changed")
        self.version += 1
        metadata = {**body["metadata"], "resourceVersion": str(self.version)}
        self.lease = {**body, "metadata": metadata}
        return self.lease


@dataclass
class Line:
    """One candidate's way to the server."""

    server: LeaseServer
    who: str

    async def request(
        self, method: str, path: str, *, body: Any = None, deadline_s: float, tries: int
    ) -> Any:
        return await self.server.request(self.who, method, body, deadline_s)


@dataclass
class Life:
    acts: list[tuple[float, str]] = field(default_factory=list)
    faults_until_s: float = 0.0

    def violations(self) -> list[str]:
        """Who acted after another one had begun to; and a world without a leader."""
        found, spans = [], {}
        for at_s, who in self.acts:
            first_s, _ = spans.get(who, (at_s, at_s))
            spans[who] = (first_s, at_s)
        ordered = sorted(spans.items(), key=lambda it: it[1][0])
        for (one, (_, last_s)), (other, (first_s, _)) in itertools.pairwise(ordered):
            if last_s >= first_s:
                found.append(f"{one} acted at {last_s:.1f} s, and {other} from {first_s:.1f} s on")
        ended_s = self.acts[-1][0] if self.acts else 0.0
        if ended_s < LIVES_S - AGAIN_S:
            found.append(f"nobody acted from {ended_s:.1f} s on")
        return found


def live(seed: int, *, checks: bool = True) -> Life:
    """A life of LIVES_S with two replicas; a process that lost its lease begins anew."""
    rng, timeline = Random(seed), Timeline()
    server = LeaseServer(rng, timeline, checks=checks)
    life = Life(faults_until_s=server.faults_until_s)
    loop = VirtualLoop(timeline, on_step=lambda: None)

    async def replica(number: int) -> None:
        for turn in itertools.count():
            me, rate = f"{number}-{turn}", 1 + rng.uniform(-DRIFT, DRIFT)
            offset_s = rng.uniform(0, 1e6)

            def clock(rate: float = rate, offset_s: float = offset_s) -> float:
                return offset_s + timeline.now_s * rate

            elector = Elector(
                Line(server, str(number)),
                namespace="x",
                name="y",
                me=me,
                times=times_of(),
                clock=clock,
            )
            await elector.acquire()
            keeping = asyncio.ensure_future(elector.renew())
            ends_s = timeline.now_s + rng.uniform(20, 400)
            while elector.leads() and timeline.now_s < ends_s:
                life.acts.append((timeline.now_s, me))
                await asyncio.sleep(ACT_S)
            await cancel_tasks([keeping])
            if rng.random() < 0.5:  # in good order; else it is killed
                await elector.release()
            await asyncio.sleep(rng.uniform(0.1, 5))

    async def world() -> None:
        replicas = [asyncio.ensure_future(replica(number)) for number in (1, 2)]
        await asyncio.sleep(LIVES_S)
        everything = asyncio.all_tasks() - {asyncio.current_task()}
        await cancel_tasks([*replicas, *everything])

    loop.run_until_complete(world())
    loop.close()
    return life
