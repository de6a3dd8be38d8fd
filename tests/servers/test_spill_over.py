"""One BatchJob over a full Daytona, a full Modal and this machine: the real engine, store, SDKs and
providers, both services emulated.

What was made and what began is asked of the emulators and of the tasks themselves.
"""

from __future__ import annotations

import asyncio
import socketserver
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fleetctl.common.clock import SystemClock
from fleetctl.controllers.schedule import capacity
from fleetctl.engine.engine import Engine
from fleetctl.manifest.yaml.reader import read_yaml
from fleetctl.providers.contract.base import Backend
from fleetctl.providers.daytona.daytona_provider import DaytonaProvider
from fleetctl.providers.local.local_provider import LocalProvider
from fleetctl.providers.modal.modal_provider import ModalProvider
from fleetctl.providers.remote.runs.follower import FollowPace
from fleetctl.wiring.account_registry import open_store
from tests.contracts import daytona_worlds, modal_worlds
from tests.contracts.local_worlds import processes_of, stop_supervisors
from tests.contracts.provider_worlds import eventually
from tests.docs.fleet import EXAMPLES
from tests.emulators.daytona.running import DaytonaEmulator
from tests.emulators.modal.running import ModalEmulator
from tests.servers import fleets
from tests.servers.fleets import BRISK, QUICK, Tally

TASKS = 9
DAYTONA_CORES = 2  # and each sandbox takes one
MODAL_SLOTS = 3
ORDERED = {
    "ordered": [{"provider": "daytona"}, {"provider": "modal"}, {"provider": "local"}],
    "spillOver": {"afterSeconds": 0},
}
# Goes on once the test opens the gate.
RATE_LIMITER = """
with socket.create_connection(("127.0.0.1", {port})) as line:
    line.recv(1)
"""
SAY_INDEX = 'SUBMIT(index=int(os.environ["JOB_COMPLETION_INDEX"]))'


@contextmanager
def gate() -> Iterator[tuple[int, Callable[[], None]]]:
    """A port at which whoever connects waits, and what lets them all go."""
    opened = threading.Event()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            opened.wait()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.request_queue_size = TASKS
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_address[1], opened.set
        finally:
            opened.set()
            server.shutdown()
            thread.join(10)


class Fleet(fleets.Fleet):
    """All three providers under one controller."""

    name = "daytona"

    def __init__(self, home: Path, daytona: DaytonaEmulator, modal: ModalEmulator) -> None:
        clock = SystemClock()
        self.home, self.daytona, self.modal = home, daytona, modal
        self.store = open_store(home, clock)
        self.providers = self._providers(home, QUICK)
        self.engine = Engine(
            store=self.store, providers=self.providers, clock=clock, settings=BRISK
        )
        self._running = asyncio.ensure_future(self.engine.run())

    def _providers(self, home: Path, pace: FollowPace) -> dict[str, Backend]:
        owner, told = self.store.store_id, self.told
        return {
            "daytona": DaytonaProvider(home, store_id=owner, notify=told, pace=pace),
            "modal": ModalProvider(home, store_id=owner, notify=told, pace=pace),
            "local": LocalProvider(home, store_id=owner, notify=told),
        }

    async def close(self) -> None:
        self.engine.stop()
        await self._running
        for provider in self.providers.values():
            await provider.close()
        self.store.close()
        stop_supervisors(self.home)

    def made_at(self) -> dict[str, int]:
        """Sandboxes of this store that the services ever had."""
        owner = self.store.store_id
        at_daytona = [
            one for one in self.daytona.state()["sandboxes"] if one["labels"].get("fleet") == owner
        ]
        at_modal = [
            one for one in self.modal.state()["sandboxes"] if one["tags"].get("fleet") == owner
        ]
        return {"daytona": len(at_daytona), "modal": len(at_modal)}

    def live(self) -> list[dict[str, Any]]:
        """Of both services, whatever the store says; and processes of this machine."""
        at_daytona = self.daytona.state()["sandboxes"]
        at_modal = [one for one in self.modal.state()["sandboxes"] if one["live"]]
        held = [one for one in at_daytona if one["state"] != "destroyed"]
        return [*held, *at_modal, *({"pid": pid} for pid in processes_of(self.home))]

    def live_where(self) -> dict[str, int]:
        where = self.status().get("where")
        return dict(where) if isinstance(where, dict) else {}


class Sweeps(Fleet):
    kind = "Sweep"


@pytest.fixture(scope="module")
def daytona() -> Iterator[DaytonaEmulator]:
    with daytona_worlds.emulated() as one:
        yield one


@pytest.fixture(scope="module")
def modal() -> Iterator[ModalEmulator]:
    with modal_worlds.emulated() as one:
        yield one


def test_one_job_runs_over_from_daytona_to_modal_to_this_machine(
    tmp_path: Path, daytona: DaytonaEmulator, modal: ModalEmulator
) -> None:
    async def scene() -> None:
        fleet = Fleet(tmp_path / "home", daytona, modal)
        try:
            with Tally() as tally, gate() as (port, let_go):
                await tale(fleet, tally, RATE_LIMITER.format(port=port) + SAY_INDEX, let_go)
        finally:
            await fleet.close()

    async def tale(fleet: Fleet, tally: Tally, work: str, let_go: Callable[[], None]) -> None:
        # Daytona says at its quota that it is full; Modal is full by a limit of our own.
        fleet.apply_kind("Provider", "modal", {"limits": {"maxConcurrent": MODAL_SLOTS}})
        fleet.apply(
            {"python": tally.python(work), "resources": {"cpu": 1}},
            tasks={"completions": TASKS},
            parallelism=TASKS,
            backoffLimitPerIndex=0,
            placement=ORDERED,
        )

        async def all_begun() -> bool:
            return tally.begun.total() == TASKS

        await eventually(all_begun, "all tasks began")
        expected = {"daytona": 2, "modal": 3, "local": 4}

        async def all_told() -> bool:
            return fleet.live_where() == expected

        await eventually(all_told, f"the status said {expected}")  # written after they began
        let_go()
        done = await fleet.phase("Succeeded")
        # Each task's work began once, whatever its unit was moved, and counts once.
        assert Counter(name.partition("/")[0] for name in tally.begun) == {
            str(index): 1 for index in range(TASKS)
        }
        assert set(tally.begun.values()) == {1}
        assert fleet.results() == {index: {"index": index} for index in range(TASKS)}
        assert (done["succeeded"], done["failed"]) == (TASKS, 0)
        totals = {it["provider"]: it["total"] for it in done["placement"]}
        assert totals == expected
        # The services themselves never had more than what ran there.
        assert fleet.made_at() == {"daytona": 2, "modal": 3}
        moved = [run for run in fleet.runs() if run.reason == "SpilledOver"]
        assert {run.provider for run in moved} == {"daytona"}
        assert all(run.started_at_s is None for run in moved)
        why = {run.provider: run.placed for run in fleet.runs() if run.started_at_s}
        assert "`daytona`: it answered QuotaExceeded" in why["local"]
        assert "`modal`: its limit of 3 sandboxes is reached" in why["local"]
        await fleet.nothing_lives()

    daytona.set(quota={"cpu": DAYTONA_CORES})
    try:
        asyncio.run(scene())
    finally:
        daytona.set(quota={"cpu": 250})


def test_the_example_of_a_search_over_this_machine_and_a_cloud_runs_at_both(
    tmp_path: Path, daytona: DaytonaEmulator, modal: ModalEmulator
) -> None:
    """As it is, but that each trial waits until the others have begun."""
    (document,) = read_yaml("-", (EXAMPLES / "sweep-local-and-cloud.yaml").read_text("utf-8")).roots
    name, spec = document.value["metadata"]["name"], document.value["spec"]
    here, there = 2, 4

    async def scene() -> None:
        fleet = Sweeps(tmp_path / "home", daytona, modal)
        try:
            with Tally() as tally, gate() as (port, let_go):
                await tale(fleet, tally, RATE_LIMITER.format(port=port), let_go)
        finally:
            await fleet.close()

    async def tale(fleet: Fleet, tally: Tally, waiting: str, let_go: Callable[[], None]) -> None:
        work = tally.python(waiting) + spec["template"]["python"]
        waiting_spec = {**spec, "template": {**spec["template"], "python": work}}
        fleet.apply_kind("Provider", "local", {"limits": {"maxConcurrent": here}})
        fleet.apply_kind("Sweep", name, waiting_spec)

        async def as_many_as_may() -> bool:
            return tally.begun.total() == spec["parallelism"]

        await eventually(as_many_as_may, "so many trials began at once")
        let_go()
        row = await fleet.phase("Succeeded", name)
        assert row["succeeded"] == spec["trials"] and row["failed"] == 0
        assert tally.begun.total() == spec["trials"]
        assert fleet.made_at() == {"daytona": 0, "modal": there}
        where = {it["provider"]: it["total"] for it in row["placement"]}
        assert set(where) == {"local", "modal"} and sum(where.values()) == spec["trials"]
        assert where["modal"] >= there

    asyncio.run(scene())


def test_a_task_that_was_moved_away_begins_elsewhere_however_soon_a_probe_is_due(
    tmp_path: Path,
    daytona: DaytonaEmulator,
    modal: ModalEmulator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To take back a start whose outcome nobody knows takes longer than a probe waits."""
    monkeypatch.setattr(capacity, "PROBE_AFTER_S_MIN", 0.0)
    ordered = {"ordered": [{"provider": "daytona"}, {"provider": "local"}]}

    async def scene() -> None:
        fleet = Fleet(tmp_path / "home", daytona, modal)
        try:
            with Tally() as tally:
                daytona.fault(operation="createSandbox", status=500)
                placement = {**ordered, "spillOver": {"afterSeconds": 0}}
                fleet.apply({"python": tally.python(SAY_INDEX)}, placement=placement)
                await fleet.phase("Succeeded")
                moved, last = fleet.runs()
                assert (moved.provider, moved.reason) == ("daytona", "SpilledOver")
                assert (last.provider, last.state.value) == ("local", "Succeeded")
                assert last.placed.startswith("next with room; `daytona`: its last start was")
        finally:
            await fleet.close()

    try:
        asyncio.run(scene())
    finally:
        daytona.remove_faults()
