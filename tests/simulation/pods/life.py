"""Controllers that take turns, and sometimes overlap, over one cluster: the provider's own code
(connection aside) is asked as the engine asks it, and what it says is held against the truth.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from fleetctl.common.errors import Unavailable
from fleetctl.common.event_loop import cancel_tasks
from fleetctl.kubernetes import informer
from fleetctl.providers.contract.base import RunRequest
from fleetctl.providers.kubernetes.connection.kubernetes_connection import (
    ClusterLink,
    KubernetesSettings,
)
from fleetctl.providers.kubernetes.kubernetes_provider import CONTRACT
from fleetctl.providers.kubernetes.runs.job_creator import JobCreator, JobParts
from fleetctl.providers.kubernetes.runs.job_sandboxes import JobSandboxes
from fleetctl.providers.kubernetes.runs.pod_statuses import split_handle
from fleetctl.providers.remote.runs.follower import SandboxOver
from fleetctl.providers.remote.sandboxes.sandbox_protocol import Cause, StreamOffsets
from fleetctl.specs.blocks.kubernetes import ClusterSettings
from fleetctl.specs.blocks.template import Template
from tests.simulation.loop import Timeline, VirtualLoop
from tests.simulation.planted.plant import swapped
from tests.simulation.pods.server import Server

STORM_S, LIVES_S = 200.0, 700.0
UNITS = 3
SWEEP_S = 20.0
TEMPLATE = Template.model_validate({"script": "true"})
PACE = KubernetesSettings(patience_s=5.0, call_s=10.0)


class Fenced(Exception):
    """Another one leads."""


@dataclass
class Record:
    """What the store holds of one unit."""

    attempt: int = 1
    handle: str = ""
    begun: bool = False
    over: bool = False


@dataclass
class Life:
    """epoch: of who leads. fenced: whether the store refuses writes of who led before."""

    server: Server
    fenced: bool
    place: Path
    epoch: int = 0
    records: dict[str, Record] = field(default_factory=dict)

    def violations(self) -> list[str]:
        found = list(self.server.wrong)
        found += [f"{unit} never ended" for unit, it in self.records.items() if not it.over]
        found += [
            f"{sort} {name} is left" for sort, name in self.server.objects if sort != "configmaps"
        ]
        return found


class Connected:
    """Stands in for the provider's Connection."""

    def __init__(self, server: Server) -> None:
        self._link = ClusterLink(server, "x", ClusterSettings())  # type: ignore[arg-type]
        self.tenants = False

    async def link(self, namespace: str = "") -> ClusterLink:
        return self._link

    async def link_for(self, namespace: str) -> ClusterLink:
        return self._link

    def is_current(self, link: ClusterLink) -> bool:
        return link is self._link


class Replica:
    """One controller's life, from taking the lead until a write of it is refused."""

    def __init__(self, life: Life) -> None:
        self.life, self.server = life, life.server
        life.epoch += 1
        self.epoch = life.epoch
        self.sandboxes = JobSandboxes(Connected(life.server), "store", PACE, life.place)  # type: ignore[arg-type]
        self.creating = JobCreator(
            self.sandboxes,
            PACE,
            parts=_nothing,
            finish=_nowhere,
            store_id="store",
            notify=lambda run: None,
        )

    async def run(self) -> None:
        works = [asyncio.ensure_future(self._unit(name)) for name in self.life.records]
        works.append(asyncio.ensure_future(self._sweep()))
        try:
            await asyncio.gather(*works)
        except Fenced:
            return
        finally:
            await cancel_tasks(works)
            await self.creating.makings.close()
            await self.sandboxes.close()

    def _write(self, unit: str, record: Record) -> None:
        if self.life.fenced and self.epoch != self.life.epoch:
            raise Fenced
        self.life.records[unit] = copy(record)

    async def _unit(self, unit: str) -> None:
        record = copy(self.life.records[unit])
        missing_s = 0.0
        while not record.over:
            with suppress(Unavailable, ConnectionError):
                missing_s = await self._step(unit, record, missing_s)
            await asyncio.sleep(self.server.rng.uniform(0.5, 3))
        while record.handle:
            with suppress(Unavailable):
                await self._end(record.handle)
                record.handle = ""
            await asyncio.sleep(1.0)

    async def _step(self, unit: str, record: Record, missing_s: float) -> float:
        """One thing that the engine would do. Returns since when the run is missing, or 0.0."""
        run = f"{unit}-{record.attempt}"
        if not record.handle:
            record.handle = await self.creating.make(_request(run, record.attempt))
            self._write(unit, record)
        pod = split_handle(record.handle)[1]
        if not record.begun:
            with suppress(ConnectionError):
                await self.server.begin(pod, run)
                record.begun = True
                self._write(unit, record)
        if self.server.told(pod):
            record.over = True
            self._write(unit, record)
            return 0.0
        with suppress(SandboxOver, ConnectionError):
            async for _ in self.sandboxes.stream(record.handle, run, None, StreamOffsets(0, 0)):
                pass
        fate = await self.sandboxes.fate(record.handle)
        now_s = self.server.timeline.now_s
        if fate is None:
            return 0.0
        # One answer decides nothing; a second one after the contract's bound does.
        settled = missing_s and now_s >= missing_s + CONTRACT.visibility_bound_s
        if fate.cause is Cause.UNKNOWN and not settled:
            return missing_s or now_s
        if self.server.works(pod):
            self.server.wrong.append(f"{run} was {fate.cause.value}, and {pod} works")
        if fate.cause is Cause.UNKNOWN:
            await self._end(record.handle)
        record.attempt, record.handle, record.begun = record.attempt + 1, "", False
        self._write(unit, record)
        return 0.0

    async def _end(self, handle: str) -> None:
        """The Job that was there when it was asked is gone when it returns, and the run's pod."""
        name, pod = split_handle(handle)
        job = self.server.objects.get(("jobs", name))
        await self.sandboxes.end(handle)
        now = self.server.objects.get(("jobs", name))
        if job and now and now["metadata"]["uid"] == job["metadata"]["uid"]:
            self.server.wrong.append(f"{handle} was ended, and its Job is there")
        if self.server.lives(pod):
            self.server.wrong.append(f"{handle} was ended, and its pod lives")

    async def _sweep(self) -> None:
        """What has our mark and no record is ended."""
        while True:
            await asyncio.sleep(SWEEP_S)
            with suppress(Unavailable):
                for it in await self.sandboxes.owned():
                    unit, _, attempt = it.sandbox.partition("-")
                    record = self.life.records[unit]
                    if record.over or int(attempt) < record.attempt:
                        if self.life.fenced and self.epoch != self.life.epoch:
                            raise Fenced
                        await self._end(it.handle)


def live(seed: int, *, fenced: bool = True) -> Life:
    """A storm, then quiet in which all must come to its end."""
    rng, timeline = Random(seed), Timeline()
    server = Server(rng, timeline, STORM_S)
    place = TemporaryDirectory(prefix="fleetctl-")
    life = Life(
        server,
        fenced,
        Path(place.name),
        records={f"u{number}": Record() for number in range(UNITS)},
    )
    loop = VirtualLoop(timeline, on_step=lambda: None)

    async def weather() -> None:
        while server.stormy:
            await asyncio.sleep(rng.uniform(2, 15))
            pods = sorted(server.pods())
            jobs = sorted(name for sort, name in server.objects if sort == "jobs")
            roll = rng.random()
            if roll < 0.2 and pods:
                server.evict(rng.choice(pods))
            elif roll < 0.5 and pods:
                server.lose_node(rng.choice(pods))
            elif roll < 0.6 and jobs:
                server.delete(rng.choice(jobs))
            elif roll < 0.8:
                server.compact()
        server.compact()

    async def world() -> None:
        tasks = [_task(Replica(life).run()), _task(weather())]
        for _ in range(3):
            await asyncio.sleep(rng.uniform(5, STORM_S / 3))
            if rng.random() < 0.5:  # it is killed; else it goes on until a write is refused
                await cancel_tasks(tasks[-1:] if len(tasks) > 2 else tasks[:1])
            tasks.append(_task(Replica(life).run()))
        await asyncio.sleep(max(0.0, LIVES_S - timeline.now_s))
        for task in tasks:
            if task.done() and not task.cancelled():
                task.result()
        await cancel_tasks(tasks)

    with swapped(informer, "Random", lambda: Random(seed)):
        loop.run_until_complete(world())
    loop.close()
    place.cleanup()
    return life


def _task(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    return asyncio.ensure_future(work)


def _request(run: str, attempt: int) -> RunRequest:
    return RunRequest(
        run, run, "store", "uid", "batchjob/x", 0, attempt, TEMPLATE, "hash", {}, reusable=False
    )


async def _nothing(*_: Any) -> JobParts:
    return JobParts({})


async def _nowhere(*_: Any) -> None:
    """No source travels."""
