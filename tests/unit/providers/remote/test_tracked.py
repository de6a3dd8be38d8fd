"""A run that is looked after no more is let go of, whatever its stream makes of that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from fleetctl.common import event_loop
from fleetctl.providers.remote.runs.follower import FollowPace
from fleetctl.providers.remote.runs.run_mirror import RunMirror
from fleetctl.providers.remote.runs.tracked_run import TrackedPhase, TrackedRun
from fleetctl.providers.remote.sandboxes.pending_creates import Terminations
from fleetctl.providers.remote.sandboxes.sandbox_protocol import Cause, Fate


class Interrupted:
    """Sandboxes whose streams take a cancellation for a connection that dropped, once."""

    def __init__(self) -> None:
        self.streams = 0
        self.waits = asyncio.Event()  # a stream was opened and says nothing

    async def stream(self, *_: object) -> AsyncGenerator[bytes, None]:
        self.streams += 1
        self.waits.set()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            if self.streams > 1:
                raise
            raise ConnectionResetError("the call was interrupted") from None
        yield b""

    async def fate(self, _: str) -> Fate:
        return Fate(Cause.UNKNOWN)


def test_a_stream_that_swallows_its_cancellation_is_left_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_loop, "AGAIN_S", 0.01)

    async def left() -> None:
        sandboxes: Any = Interrupted()
        tracked = TrackedRun(
            "r", "sb-1", RunMirror(tmp_path, "r"), work=None, sandbox_open=lambda: None
        )
        pace = FollowPace(retry_initial_s=0.001)
        tracked.look_after(sandboxes, Terminations(sandboxes), lambda _: None, pace)
        await sandboxes.waits.wait()
        async with asyncio.timeout(300):  # else it would wait for ever
            await tracked.sandbox_ended()
        assert tracked.phase is TrackedPhase.OVER
        assert tracked.crash is None

    asyncio.run(left())
