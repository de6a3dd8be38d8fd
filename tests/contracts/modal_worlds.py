"""Worlds of provider `modal`: the real SDK against the emulator of tests/emulators/modal, in a
process of its own for all worlds of a module. Each world is a store of its own in it.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from typing import Any

from fleetctl.controllers.model import Alive
from fleetctl.providers.contract.base import Backend, FunctionRequest, RunRef, RunRequest
from fleetctl.providers.modal.modal_provider import ModalProvider
from fleetctl.providers.remote.runs.follower import FollowPace
from fleetctl.specs.blocks.template import Template
from tests.contracts.provider_answers import WORDS, SpoiltWorld
from tests.contracts.provider_worlds import PAUSE_S
from tests.emulators.modal.running import ModalEmulator

CUT_AGAIN_S = 3.0
QUICK = FollowPace(retry_initial_s=0.05, retry_max_s=0.5)


@contextmanager
def emulated() -> Iterator[ModalEmulator]:
    """An emulator that the SDK in this process finds; the environment is put back after."""
    with ModalEmulator() as emulator:
        before = dict(os.environ)
        os.environ.update(emulator.env)
        try:
            yield emulator
        finally:
            os.environ.clear()
            os.environ.update(before)


# RPCs by what is asked with them.
QUESTIONS = {
    "create": ("SandboxCreate*",),
    "look": (
        "SandboxWait*",
        "SandboxGetTaskId*",
        "SandboxTagsGet*",
        "SandboxGetFromName*",
    ),
    "end": ("SandboxTerminate*",),
    "any": ("*",),
}
ANSWERS = {
    "key": {"status": "UNAUTHENTICATED", "message": "token revoked"},
    "page": {"status": "PAGE_404"},
    "unknown": {"status": "DATA_LOSS", "message": WORDS},
    "broken": {"status": "INTERNAL", "message": "it broke"},
    "gone": {"status": "NOT_FOUND", "message": "no such sandbox"},
}


class ModalWorld(SpoiltWorld):
    resources: Mapping[str, Any] = {"gpu": "T4:1"}

    async def machine(self, ref: RunRef, printed: Mapping[str, Any]) -> Mapping[str, object]:
        return {"gpu": f"{self._box(ref)['gpu']}"}

    async def allowed_hosts(self, ref: RunRef) -> list[str]:
        return list(self._box(ref)["network"]["allowed"])

    def _box(self, ref: RunRef) -> dict[str, Any]:
        boxes: list[dict[str, Any]] = self.emulator.state()["sandboxes"]
        return next(it for it in boxes if it["sandbox_id"] == ref.handle)

    def __init__(self, directory: Path, emulator: ModalEmulator) -> None:
        self.emulator = emulator
        self.salt = token_hex(4)
        self._cut_at_s = -math.inf
        super().__init__(directory)

    def build(self, store_id: str, notify: Callable[[str], None]) -> Backend:
        return ModalProvider(
            self.directory / "home",
            store_id=f"{store_id}-{self.salt}",
            notify=notify,
            pace=QUICK,
        )

    async def lose(self, ref: RunRef) -> None:
        """Preempt the sandbox: its machine goes, with all that was not committed."""
        self.emulator.do("preempt", sandbox_id=ref.handle)

    def spoil(self, question: str, answer: str) -> None:
        if question == "look":
            # Who cannot follow it looks at it; the SDK asks a worker again for long otherwise.
            for rpc in ("TaskExecStart", "TaskExecStdioRead"):
                self.emulator.do("fault", rpc=rpc, count=None, **ANSWERS["gone"])
        for rpc in QUESTIONS[question]:
            self.emulator.do("fault", rpc=rpc, count=None, **ANSWERS[answer])

    def mend(self) -> None:
        self.emulator.do("clear_faults")

    def asked(self) -> int:
        faults = self.emulator.state()["faults"]
        return sum(int(it["hits"]) for it in faults if not it["rpc"].startswith("Task"))

    def cut(self, ref: RunRef) -> None:
        # Cut again and again, the SDK would connect again for ever and never hear what is spoilt.
        if time.monotonic() - self._cut_at_s > CUT_AGAIN_S:
            self.emulator.do("lose", endpoint="router")
            self._cut_at_s = time.monotonic()

    def living(self) -> int:
        fleet = f"{self.store_id}-{self.salt}"
        return sum(one["tags"].get("fleet") == fleet for one in self.emulator.live())

    async def close(self) -> None:
        self.mend()
        await super().close()


class FunctionWorld(ModalWorld):
    """The same store, with every template run by a function of its own."""

    def order(
        self, template: Template | None = None, *, run: str = "run-0", **changes: Any
    ) -> RunRequest:
        made = super().order(template, run=run, **changes)
        called = made.template.model_copy(update={"runtime": "function"})
        return replace(made, template=called, function=FunctionRequest("", 0, None, 60.0))

    async def begin(self, order: RunRequest, provider: Backend | None = None) -> RunRef:
        """The second phase tells the call, which is the handle from then on."""
        provider = provider or self.provider
        first = await provider.start(order)
        handle = await provider.start(replace(order, handle=first))
        self.handles[order.run] = handle
        return RunRef(order.run, order.sandbox, handle, 0, order.uid)

    async def lose(self, ref: RunRef) -> None:
        """The container's machine goes once the run has begun; Modal begins its input again
        elsewhere.
        """
        while isinstance(seen := await self.see(ref), Alive) and seen.started_at_s is None:
            await asyncio.sleep(PAUSE_S)
        one = self.input(ref)
        if one["state"] == "running":
            self.emulator.do("preempt_container", task_id=one["began"][-1]["task_id"])

    def input(self, ref: RunRef) -> dict[str, Any]:
        """What the emulator knows of the run's call."""
        call = ref.handle.split(":")[1]
        calls = self.emulator.state()["functions"]["calls"]
        found: dict[str, Any] = next(it for it in calls if it["call_id"] == call)["inputs"][0]
        return found
