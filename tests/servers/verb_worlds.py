"""A real store and one provider in this process, for verbs that work without a controller: each
provider once, the clouds as their emulators.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen
from fleetctl.common.clock import SystemClock
from fleetctl.controllers.model import Resource, Run, RunState
from fleetctl.providers.contract.base import Backend, RunRef
from fleetctl.specs.blocks.template import Template
from fleetctl.views.exec_targets import account_named
from fleetctl.wiring.account_registry import AccountRegistry, open_store, orphans_of
from tests.contracts.local_worlds import stop_supervisors
from tests.contracts.provider_worlds import World
from tests.emulators.daytona.running import DaytonaEmulator
from tests.emulators.kubernetes.running import KubernetesEmulator
from tests.emulators.modal.running import ModalEmulator
from tests.servers.daytona_fleet import DURATIONS_S, USUAL

PROVIDERS = ("local", "modal", "daytona", "kubernetes")
# What a verb does is the same code on all of them; `make test` tries it on two.
ON_TWO = pytest.mark.only_all(
    reason="a verb of the command line on the other clouds", of=("modal", "kubernetes")
)
ELSEWHERE = ("DAYTONA_", "MODAL_", "KUBE")  # begin the variables that name a service
DAYTONA_SETTINGS = {
    "FLEETCTL_DAYTONA_QUICK_S": "0.3",
    "FLEETCTL_DAYTONA_CREATES_PER_S": "100",
}


@contextmanager
def service(provider: str) -> Iterator[Any]:
    """The emulator of a provider, which every SDK in this process finds; None for local."""
    if provider == "local":
        yield None
        return
    emulators = {"modal": ModalEmulator, "daytona": DaytonaEmulator}
    made: Any = emulators.get(provider, KubernetesEmulator)()
    with made as emulator:
        before = dict(os.environ)
        for name in [name for name in os.environ if name.startswith(ELSEWHERE)]:
            del os.environ[name]
        os.environ.update(emulator.env | (DAYTONA_SETTINGS if provider == "daytona" else {}))
        if provider == "daytona":
            emulator.set(durations_s=DURATIONS_S, **USUAL)
        try:
            yield emulator
        finally:
            os.environ.clear()
            os.environ.update(before)


class VerbWorld(World):
    """A store with a record of what `record` was told, and of nothing else."""

    def __init__(self, home: Path, provider: str) -> None:
        self.home, self.name = home, provider
        self.refs: dict[str, RunRef] = {}
        self.store = open_store(home, SystemClock())
        self.store_id = self.store.store_id
        super().__init__(home)

    def build(self, store_id: str, notify: Callable[[str], None]) -> Backend:
        return AccountRegistry(self.home, store_id=store_id, notify=notify).backends[self.name]

    def record(
        self,
        ref: RunRef,
        *,
        index: int = 0,
        spec: dict[str, Any] | None = None,
        resource: bool = True,
    ) -> None:
        """What the engine would have written down of a run that lives. resource: with its job."""
        self.refs[ref.run] = ref
        row = Resource(ref.uid, "BatchJob", "job", 1, 0, json.dumps(spec or {}), "", {}, {}, 5.0)
        run = Run(
            ref.run, ref.uid, index, 1, RunState.STARTING, self.name, ref.sandbox, "hash", "{}",
            "p", 6.0,
        )  # fmt: skip
        fields = {name: getattr(run, name) for name in Run.__slots__}
        live = Run(**{**fields, "state": RunState.RUNNING, "handle": ref.handle})
        with self.store.transaction():
            if resource:
                self.store.resources.put(row, expected_version=None)
            self.store.runs.begin([run])
            assert self.store.runs.advance(live)

    async def fleetctl(self, *words: str, stdin: bytes | None = None) -> tuple[int, str, str]:
        """A command, in a thread: it has an event loop of its own."""
        out, talk = io.TextIOWrapper(io.BytesIO(), "utf-8", newline=""), io.StringIO()
        code = await asyncio.to_thread(run_guarded, list(words), Screen(out, talk))
        out.flush()
        return code, out.buffer.getvalue().decode(errors="replace"), talk.getvalue()  # type: ignore[attr-defined]


async def remove_all(home: Path, provider: str) -> None:
    """Everything of any store, remembered or not, until nothing is listed: the next tale has the
    same service.
    """
    orphans = orphans_of(account_named(provider, home), home)
    try:
        while found := await orphans.find_all():
            for orphan in found:
                await orphans.remove(orphan)
    finally:
        await orphans.close()


Tale = Callable[[VerbWorld], Awaitable[None]]


def play(home: Path, provider: str, tale: Tale) -> None:
    """Tell a tale; afterwards nothing of it lives."""

    async def scene() -> None:
        world = VerbWorld(home, provider)
        try:
            await tale(world)
        finally:
            await world.close()
            world.store.close()
            await remove_all(home, provider)
            if provider == "local":
                stop_supervisors(home)

    asyncio.run(scene())


SLEEPS = Template(script="echo begun; exec sleep 600")
