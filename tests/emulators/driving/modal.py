"""Helps the tests that drive the Modal emulator with the real SDK."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

import modal
import pytest

from tests.emulators.modal.running import ModalEmulator

PATIENCE_S = 120.0
ASKING_PAUSE_S = 0.2  # between commands that ask how far something is


def eventually(condition: Callable[[], Any], *, pause_s: float = 0.02) -> Any:
    """What the condition says once it is true. Fails only when it never becomes so. pause_s: longer
    where asking is a process of its own, which would take the core from what it waits for.
    """
    give_up_at = time.monotonic() + PATIENCE_S
    while not (said := condition()):
        assert time.monotonic() < give_up_at, "what the test waits for has not happened"
        time.sleep(pause_s)
    return said


class Driver:
    """A client of an emulator, with an app of its own for one test. At the end all that the test
    left running in that app is terminated."""

    def __init__(self, emulator: ModalEmulator, name: str) -> None:
        self.emulator = emulator
        self.name = "".join(letter if letter.isalnum() else "-" for letter in name)[:60]
        self.client: Any = None
        self.app: Any = None
        self._patch = pytest.MonkeyPatch()

    def __enter__(self) -> Driver:
        for key, value in self.emulator.env.items():
            self._patch.setenv(key, value)
        self.client = modal.Client.from_credentials(
            self.emulator.env["MODAL_TOKEN_ID"], self.emulator.env["MODAL_TOKEN_SECRET"]
        )
        self.app = modal.App.lookup(self.name, client=self.client, create_if_missing=True)
        self.image = modal.Image.debian_slim()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.app.stop(client=self.client)
        self.client.close()
        self._patch.undo()

    def volume(self, name: str, *, version: int) -> modal.Volume:
        full_name = f"{name}-v{version}"
        modal.Volume.objects.delete(full_name, allow_missing=True, client=self.client)
        volume = modal.Volume.from_name(
            full_name, version=version, create_if_missing=True, client=self.client
        )
        return volume.hydrate()

    def sandbox(self, *args: str, **options: Any) -> modal.Sandbox:
        return modal.Sandbox.create(
            *args, app=self.app, image=self.image, client=self.client, **options
        )
