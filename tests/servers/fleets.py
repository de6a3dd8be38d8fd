"""A store with a real engine and one provider in this process; and a tally that tasks call
themselves, so that what was really begun is known without asking the store.

Used by the tests of how clouds fail. Waiting is for the world to change, never for a time.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import socketserver
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fleetctl.apply.write import commit
from fleetctl.common.clock import SystemClock
from fleetctl.controllers.model import Run
from fleetctl.engine.engine import Engine
from fleetctl.engine.shared.engine_state import EngineSettings
from fleetctl.manifest import Document, load_manifests
from fleetctl.providers.contract.base import Backend
from fleetctl.providers.remote.runs.follower import FollowPace
from fleetctl.wiring.account_registry import open_store
from tests.contracts.provider_worlds import eventually

BRISK = EngineSettings(retry_initial_s=0.05, retry_max_s=1.0, stop_again_s=1.0)
QUICK = FollowPace(retry_initial_s=0.05, retry_max_s=0.5)

Play = Callable[..., None]

# In every task: says that its work begins, to the tally of the test, and goes on once that has
# counted it. Sandboxes of emulators share this machine's network.
CALL = """
import os, socket
with socket.create_connection(("127.0.0.1", {port})) as line:
    said = f"{word} {{os.environ['JOB_COMPLETION_INDEX']}}/{{os.environ['FLEETCTL_ATTEMPT']}}"
    line.sendall(said.encode() + b"\\n")
    line.recv(1)
"""


class Tally:
    """How often the work of each `index/attempt` really began. Only who knows its word is counted:
    clients of servers that are gone try their old ports, and one of those may be ours now.
    """

    def __init__(self) -> None:
        self.begun: Counter[str] = Counter()
        self._word = secrets.token_hex(8)
        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def python(self, code: str = "") -> str:
        """A Python task that calls the tally and goes on with `code`."""
        return CALL.format(port=self._server.server_address[1], word=self._word) + code

    def _handler(self) -> type[socketserver.BaseRequestHandler]:
        begun, ours = self.begun, self._word

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                word, _, attempt = self.rfile.readline().decode(errors="replace").partition(" ")
                if word == ours:
                    begun[attempt.strip()] += 1
                    self.wfile.write(b".")

        return Handler


class Fleet:
    """One store and its controller. Made inside the event loop of a test. A subclass knows the
    provider, and its emulator's truth.
    """

    name = ""  # of the provider
    kind = "BatchJob"  # of the objects that are asked about

    def __init__(
        self, home: Path, *, settings: EngineSettings = BRISK, pace: FollowPace = QUICK
    ) -> None:
        self._home, self._settings, self._pace = home, settings, pace
        self._open()

    def _open(self) -> None:
        clock = SystemClock()
        self.store = open_store(self._home, clock)
        self.provider = self.build(self._home, self._pace)
        self.engine = Engine(
            store=self.store,
            providers={self.name: self.provider},
            clock=clock,
            settings=self._settings,
            **self.parts(),
        )
        self._running = asyncio.ensure_future(self.engine.run())

    def parts(self) -> dict[str, Any]:
        """What else the engine is made of."""
        return {}

    def build(self, home: Path, pace: FollowPace) -> Backend:
        raise NotImplementedError

    def made(self) -> list[dict[str, Any]]:
        """Every sandbox that was ever made for this store."""
        raise NotImplementedError

    def live(self) -> list[dict[str, Any]]:
        """Those of them that are not over."""
        raise NotImplementedError

    def told(self, run: str) -> None:
        self.engine.notify(run)

    async def rest(self) -> None:
        """The controller ends; the provider can still be asked."""
        self.engine.stop()
        await self._running

    async def close(self) -> None:
        await self.rest()
        await self.provider.close()
        self.store.close()

    # -- specs ------------------------------------------------------------------------------------

    def apply(self, template: Mapping[str, Any], *, name: str = "job", **spec: Any) -> None:
        """A BatchJob; one task unless `spec` says otherwise."""
        spec = {"tasks": {"completions": 1}, "placement": {"provider": self.name}, **spec}
        self.apply_kind("BatchJob", name, {**spec, "template": dict(template)})

    def apply_kind(self, kind: str, name: str, spec: Mapping[str, Any]) -> None:
        manifest = {
            "apiVersion": "fleetctl.dev/v1alpha1",
            "kind": kind,
            "metadata": {"name": name},
            "spec": dict(spec),
        }
        manifests = load_manifests([Document("test.yaml", json.dumps(manifest), "/")])
        for outcome in commit.apply_manifests(
            self.store, manifests, self.engine.state.clock.now_s()
        ):
            self.engine.state.poke(outcome.uid)

    def delete(self, name: str = "job") -> None:
        self.delete_kind("BatchJob", name)

    def delete_kind(self, kind: str, name: str) -> None:
        self.engine.state.poke(
            commit.delete_object(self.store, kind, name, self.engine.state.clock.now_s())
        )

    def suspend(self, name: str = "job", *, wanted: bool) -> None:
        now_s = self.engine.state.clock.now_s()
        commit.suspend_object(self.store, self.kind, name, now_s, wanted=wanted)
        self.engine.state.inbox.wake()

    # -- what is recorded --------------------------------------------------------------------------

    def status(self, name: str = "job") -> dict[str, Any]:
        row = self.store.resources.get(self.kind, name)
        return dict(json.loads(row.status)) if row is not None and row.status else {}

    def runs(self, name: str = "job") -> list[Run]:
        """Oldest attempts first."""
        row = self.store.resources.get(self.kind, name)
        assert row is not None
        return sorted((run for run, _ in self.store.runs.of(row.uid)), key=lambda run: run.attempt)

    def results(self, name: str = "job") -> dict[int, Any]:
        row = self.store.resources.get(self.kind, name)
        assert row is not None
        found = {run.index: text for run, text in self.store.runs.of(row.uid) if text}
        return {index: json.loads(text) for index, text in sorted(found.items())}

    async def phase(self, wanted: str, name: str = "job") -> dict[str, Any]:
        """The status once it has that phase."""

        async def has_it() -> bool:
            assert not self._running.done()
            return self.status(name).get("phase") == wanted

        try:
            await eventually(has_it, f"{name} was {wanted}")
        except AssertionError as error:
            raise AssertionError(f"{error}; its status: {self.status(name)}") from None
        return self.status(name)

    async def over(self, kind: str, name: str) -> dict[str, Any]:
        """The status of an object at its end."""
        status: dict[str, Any] = {}

        async def is_over() -> bool:
            row = self.store.resources.get(kind, name)
            status.update(json.loads(row.status) if row is not None and row.status else {})
            return status.get("phase") in ("Succeeded", "Failed")

        await eventually(is_over, f"{name} was over")
        return status

    async def waits(self, reason: str, name: str = "job") -> dict[str, Any]:
        """The status once it says that reason."""

        async def says_it() -> bool:
            assert not self._running.done()
            return self.status(name).get("reason") == reason

        try:
            await eventually(says_it, f"{name} said {reason}")
        except AssertionError as error:
            raise AssertionError(f"{error}; its status: {self.status(name)}") from None
        return self.status(name)

    async def gone(self, name: str = "job") -> None:
        async def is_gone() -> bool:
            # Looked up by its name, one that is being deleted is not found.
            return name not in [row.name for row in self.store.resources.list()]

        await eventually(is_gone, f"{name} was deleted")

    # -- the truth ---------------------------------------------------------------------------------

    async def nothing_lives(self) -> None:
        async def all_over() -> bool:
            return not self.live()

        await eventually(all_over, "every sandbox was over")


def telling(make: Callable[..., Fleet]) -> Play:
    """Tells a tale of one store: `make` gets the options of the play, inside the event loop."""

    def told(tale: Callable[[Any], Awaitable[None]], **options: Any) -> None:
        async def scene() -> None:
            fleet = make(**options)
            try:
                await tale(fleet)
            finally:
                await fleet.close()

        asyncio.run(scene())

    return told


async def begins(tally: Tally, count: int = 1) -> None:
    async def works() -> bool:
        return tally.begun.total() >= count

    await eventually(works, f"{count} began to work")
