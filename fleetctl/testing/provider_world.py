"""A provider under test as the contract sees it: a way to build it, orders, and patience.

Waiting is for the world to change, never for a time: WAIT_S only turns a hang into a failure that
names its cause.
"""

from __future__ import annotations

import asyncio
import functools
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from typing import Any, TypeVar

from fleetctl.common.errors import Unavailable
from fleetctl.controllers.model import Alive, Ended, Gone, Observation
from fleetctl.providers.contract.base import Backend, RunRef, RunRequest
from fleetctl.specs.blocks.template import Template

WAIT_S = 300.0
PAUSE_S = 0.02
# Reasons of an order that is under way, for longer than a start waits.
BEING_MADE = ("Building", "Queued")
T = TypeVar("T")


class ProviderWorld:
    """A store's view of a provider. A subclass has `build` and `lose`.

    directory: of the test's own. told: names of the runs that the provider has notified of.
    """

    store_id = "store-a"

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        # Tests of volumes make, fill and remove it; a test that fails leaves it to no other one.
        self.volume = f"shared-{token_hex(4)}"
        self.told: list[str] = []
        self.handles: dict[str, str] = {}  # of the runs that were begun
        self.backends: list[Backend] = []
        self.provider = self.again()

    def build(self, store_id: str, notify: Callable[[str], None]) -> Backend:
        """Returns a backend of its own for each call, with `self.directory / "home"` as its state
        directory.
        """
        raise NotImplementedError(f"{type(self).__name__} defines `build`")

    async def lose(self, ref: RunRef) -> None:
        """Make the run and its sandbox vanish without an end record, as a dying machine does."""
        raise NotImplementedError(f"{type(self).__name__} defines `lose`")

    def again(self, store_id: str | None = None) -> Backend:
        """Returns the backend of the next controller of the same store, or of another store."""
        self.backends.append(self.build(store_id or self.store_id, self.told.append))
        return self.backends[-1]

    async def close(self) -> None:
        for backend in self.backends:
            await backend.close()

    def order(
        self, template: Template | None = None, *, run: str = "run-0", **changes: Any
    ) -> RunRequest:
        fields: dict[str, Any] = {
            "sandbox": run,
            "owner": self.store_id,
            "uid": "uid-1",
            "resource": "batchjob/suite",
            "index": 0,
            "attempt": 1,
            "template": template or python_task("pass"),
            "template_hash": "hash-1",
            "params": {},
            "reusable": False,
        }
        return RunRequest(run=run, **(fields | changes))

    async def start(
        self, template: Template | None = None, *, run: str = "run-0", **changes: Any
    ) -> RunRef:
        return await self.begin(self.order(template, run=run, **changes))

    async def begin(self, order: RunRequest, provider: Backend | None = None) -> RunRef:
        """Start the work of an order, in both phases where there are two."""
        provider = provider or self.provider
        shared = self.handles.get(order.sandbox, "") if order.sandbox != order.run else ""
        handle = await repeat_start(lambda: provider.start(replace(order, handle=shared)))
        if provider.contract.two_phase and not shared:
            assert await provider.start(replace(order, handle=handle)) == handle
        self.handles[order.run] = handle
        return RunRef(order.run, order.sandbox, handle, 0, order.uid)

    async def see(self, ref: RunRef) -> Observation | None:
        """With all that was reported since `ref`, which a provider may report in pieces."""
        pieces: list[Alive | Ended] = []
        while True:
            seen = next(iter(await self.provider.observe([ref])), None)
            if not isinstance(seen, Alive | Ended):
                return seen
            pieces.append(seen)
            if isinstance(seen, Ended) or not seen.more:
                break
            ref = replace(ref, journal_offset=seen.journal_offset)
        if len(pieces) == 1:
            return seen
        saved = tuple(one for it in pieces for one in it.checkpoints.saved)
        return replace(
            seen,
            metrics=tuple(one for it in pieces for one in it.metrics),
            remarks=tuple(one for it in pieces for one in it.remarks),
            checkpoints=replace(seen.checkpoints, saved=saved),
        )

    async def until(
        self, ref: RunRef, fits: Callable[[Observation], bool], what: str
    ) -> Observation:
        """The first observation of `ref` that fits."""
        seen: Observation | None = None
        for _ in range(int(WAIT_S / PAUSE_S)):
            seen = await self.see(ref)
            if seen is not None and fits(seen):
                return seen
            await asyncio.sleep(PAUSE_S)
        raise AssertionError(f"{ref.run} never {what}; last seen: {seen}")

    async def ended(self, ref: RunRef) -> Ended:
        seen = await self.until(ref, lambda seen: isinstance(seen, Ended), "ended")
        assert isinstance(seen, Ended)
        return seen

    async def alive(self, ref: RunRef) -> Alive:
        seen = await self.until(ref, lambda seen: isinstance(seen, Alive), "lived")
        assert isinstance(seen, Alive)
        return seen

    async def lost(self, ref: RunRef) -> Gone | Ended:
        """Until it is gone, or its provider reports the fate of its machine."""
        seen = await self.until(ref, _is_lost, "was lost")
        assert isinstance(seen, Gone | Ended)
        return seen

    async def run(self, template: Template | None = None, **changes: Any) -> Ended:
        return await self.ended(await self.start(template, **changes))

    async def log(self, ref: RunRef, *, offset: int = 0, follow: bool = False) -> bytes:
        """Returns its output, without our remark on files that nobody keeps."""
        text = await self.whole_log(ref, offset=offset, follow=follow)
        return _NOT_KEPT.sub(b"", text)

    async def whole_log(self, ref: RunRef, *, offset: int = 0, follow: bool = False) -> bytes:
        chunks = self.provider.logs(ref, offset=offset, follow=follow)
        return b"".join([chunk.data async for chunk in chunks])

    async def log_holds(self, ref: RunRef, text: bytes) -> None:
        await wait_until(lambda: self._log_holds(ref, text), f"{ref.run} printed {text!r}")

    async def _log_holds(self, ref: RunRef, text: bytes) -> bool:
        return text in await self.log(ref)


_NOT_KEPT = re.compile(rb"(?m)^fleetctl: [^\n]* not kept, [^\n]*template\.outputs[^\n]*\n")


def _is_lost(seen: Observation) -> bool:
    return isinstance(seen, Gone) or (isinstance(seen, Ended) and seen.infrastructure)


async def repeat_start(ask: Callable[[], Awaitable[T]]) -> T:
    """Asks again, as the engine does, while an image is built or a machine is waited for."""
    give_up_at_s = time.monotonic() + WAIT_S
    while True:
        try:
            return await ask()
        except Unavailable as error:
            if error.reason not in BEING_MADE or time.monotonic() > give_up_at_s:
                raise
        await asyncio.sleep(PAUSE_S)


async def wait_until(holds: Callable[[], Awaitable[bool]], what: str) -> None:
    for _ in range(int(WAIT_S / PAUSE_S)):
        if await holds():
            return
        await asyncio.sleep(PAUSE_S)
    raise AssertionError(f"it never happened that {what}")


def python_task(code: str, **fields: Any) -> Template:
    return Template.model_validate({"python": code, **fields})


def script_task(text: str, **fields: Any) -> Template:
    return Template.model_validate({"script": text, **fields})


def command_task(*words: str, **fields: Any) -> Template:
    return Template.model_validate({"command": list(words), **fields})


WorldTest = Callable[[Any, Any], Awaitable[None]]


def contract_test(play_test: WorldTest) -> Callable[[Any, Any], None]:
    """A test that is a coroutine `(self, world)`; the world is made inside its event loop."""

    @functools.wraps(play_test)
    def test(self: Any, tmp_path: Path) -> None:
        async def play() -> None:
            world = self.world(tmp_path)
            try:
                await play_test(self, world)
            finally:
                await world.close()

        asyncio.run(play())

    # pytest would take `world` for a fixture of its own.
    del test.__wrapped__
    return test
