"""A provider's view of an emulated Modal for tests of images, volumes and secrets."""

from __future__ import annotations

import asyncio
import functools
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import modal
import pytest

from fleetctl.providers.modal.assets.modal_images import ModalImages
from fleetctl.providers.paths import jobs_dir
from fleetctl.specs.blocks.template import Template
from tests.emulators.modal.running import ModalEmulator

Story = Callable[["Assets"], Awaitable[None]]
WAIT_S = 240.0  # only turns a hang into a failure


class Assets:
    """One client, one app, one state directory. Made inside the event loop of a test."""

    def __init__(self, emulator: ModalEmulator, home: Path) -> None:
        self.emulator, self.home = emulator, home
        self.images = ModalImages(home / "modal")
        self.client: Any = None
        self.app: Any = None

    async def open(self, name: str) -> None:
        self.client = await self.connect()
        self.app = await modal.App.lookup.aio(name, client=self.client, create_if_missing=True)

    async def connect(self, token: str = "MODAL_TOKEN") -> modal.Client:
        env = self.emulator.env
        return await modal.Client.from_credentials.aio(env[f"{token}_ID"], env[f"{token}_SECRET"])

    async def close(self) -> None:
        await self.images.close()
        await self.app.stop.aio(client=self.client)
        await self.client.close.aio()

    def job(self, uid: str = "u") -> Path:
        return jobs_dir(self.home, "modal") / uid

    async def ready(self, uid: str = "u", **template: Any) -> modal.Image:
        """Waits for builds, as the engine does by asking again."""
        return await self.made(Template.model_validate({"script": "true", **template}), uid)

    async def made(self, wanted: Template, uid: str = "u") -> modal.Image:
        return await self.images.ready(self.client, self.app, wanted, self.job(uid))

    async def output(self, image: modal.Image, *command: str, **options: Any) -> str:
        """What a command prints in a sandbox of this image."""
        sandbox = await modal.Sandbox.create.aio(
            *command, app=self.app, image=image, client=self.client, **options
        )
        reply = await sandbox.stdout.read.aio() + await sandbox.stderr.read.aio()
        await sandbox.wait.aio()
        return str(reply)

    def rpcs(self, name: str) -> int:
        return self.emulator.rpcs().get(name, 0)


def told(story: Story) -> Callable[..., None]:
    """A test that is a coroutine of one `assets`; the emulator is the module's fixture."""

    @functools.wraps(story)
    def test(emulator: ModalEmulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in emulator.env.items():
            monkeypatch.setenv(name, value)

        async def play() -> None:
            assets = Assets(emulator, tmp_path / "home")
            await assets.open(story.__name__[:60].replace("_", "-"))
            try:
                await story(assets)
            finally:
                emulator.do("clear_faults")
                await assets.close()

        asyncio.run(play())

    del test.__wrapped__  # type: ignore[attr-defined] # pytest would take `assets` for a fixture
    return test


class Door:
    """Something that a build waits for: a server that answers nothing until it is opened."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.command = f"bash -c 'read -r line < /dev/tcp/127.0.0.1/{port}; true'"

    async def knocked(self) -> None:
        """Until the build stands at the door."""
        self._listener.setblocking(False)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(WAIT_S):
            self._visitor, _ = await loop.sock_accept(self._listener)

    def open(self) -> None:
        self._visitor.close()
        self._listener.close()


async def eventually(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not holds():
            await asyncio.sleep(0.02)
