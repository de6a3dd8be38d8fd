"""Fixtures that more than one file here uses."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator

import pytest

from tests.emulators.wandb.running import WandbEmulator

if [*importlib.metadata.Distribution.discover(name="daytona")]:
    # An environment of `make sdk-bounds` has one SDK, and then the tests of that one alone.
    from tests.emulators.driving.daytona import emulator, server

    __all__ = ["emulator", "server"]


@pytest.fixture
def wandb_emulator() -> Iterator[WandbEmulator]:
    """A new one for each test: it starts in 30 ms, and what was asked of it is counted."""
    with WandbEmulator() as one:
        yield one
