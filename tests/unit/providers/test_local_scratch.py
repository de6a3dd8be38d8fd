"""What is being freed of an object is never what a run of it begins in."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from fleetctl.common.errors import Unavailable
from fleetctl.providers.contract.base import RunRequest
from fleetctl.providers.local.assets import local_volumes
from fleetctl.providers.local.local_layout import LocalLayout
from fleetctl.providers.local.local_provider import LocalProvider
from fleetctl.specs.blocks.template import Template

TURNS = 50


def request() -> RunRequest:
    return RunRequest(
        run="fl-1", sandbox="fl-1", owner="s", uid="u", resource="batchjob/a", index=0, attempt=1,
        template=Template(script="true"), template_hash="h", params={}, reusable=False,
    )  # fmt: skip


class Local(LocalProvider):
    """Its supervisors are not the point: a run is a file in the work directory of its object."""

    def __init__(self, home: Path) -> None:
        super().__init__(home, store_id="s", notify=lambda run: None)
        self.file = LocalLayout(home).work("u") / "h-0" / "data"
        self.ready: asyncio.Event | None = None  # what a start waits for, as for an environment

    async def _order(self, name: str, request: RunRequest) -> str:
        self.file.parent.mkdir(parents=True)
        self.file.write_text("in use")
        if self.ready is not None:
            await self.ready.wait()
        return f"{name}/1"


def test_a_run_begins_after_what_is_being_freed_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        provider, go_on, free = Local(tmp_path), threading.Event(), local_volumes.remove_scratch

        def slow(*arguments: Any) -> None:
            assert go_on.wait(300)
            free(*arguments)

        monkeypatch.setattr(local_volumes, "remove_scratch", slow)
        old = LocalLayout(tmp_path).work("u") / "h-7"
        old.mkdir(parents=True)
        freeing = asyncio.ensure_future(provider.remove_scratch("u", keep_logs=True))
        await asyncio.sleep(0)
        freeing.cancel()  # whoever waits may give up; the thread goes on
        starting = asyncio.ensure_future(provider.start(request()))
        for _ in range(TURNS):
            await asyncio.sleep(0)
        assert not provider.file.exists()
        go_on.set()
        await starting
        assert provider.file.read_text() == "in use" and not old.exists()

    asyncio.run(story())


def test_nothing_is_freed_while_a_run_begins(tmp_path: Path) -> None:
    async def story() -> None:
        provider = Local(tmp_path)
        provider.ready = asyncio.Event()
        starting = asyncio.ensure_future(provider.start(request()))
        for _ in range(TURNS):
            await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="starts"):
            await provider.remove_scratch("u", keep_logs=True)
        provider.ready.set()
        await starting
        assert provider.file.read_text() == "in use"
        await provider.remove_scratch("u", keep_logs=True)
        assert not provider.file.exists()

    asyncio.run(story())
