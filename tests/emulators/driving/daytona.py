"""What the tests of the Daytona emulator share: one emulator a module, clean before each test."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from daytona import Daytona, DaytonaNotFoundError, Sandbox, SandboxState

from tests.emulators.daytona.running import DaytonaEmulator

PATIENCE_S = 120.0  # against a hang alone: eight of these share two cores
STEP_S = 0.02


@pytest.fixture(scope="module")
def server() -> Iterator[DaytonaEmulator]:
    """The emulator, and the variables of the SDK that lead to it."""
    with DaytonaEmulator() as emulator, pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("DAYTONA_")]:
            patch.delenv(name)
        for name, value in emulator.env.items():
            patch.setenv(name, value)
        yield emulator


@pytest.fixture
def emulator(server: DaytonaEmulator) -> Iterator[DaytonaEmulator]:
    """Without faults, and with no request counted; nothing of one test is left for the next."""
    server.remove_faults()
    server.forget_requests()
    yield server
    server.remove_faults()


def wait_until(true: Callable[[], Any], *, what: str = "it") -> Any:
    """The first truthy answer; the wait is generous, because no test fails by time."""
    give_up_at_s = time.monotonic() + PATIENCE_S
    while not (found := true()):
        assert time.monotonic() < give_up_at_s, f"{what} did not happen"
        time.sleep(STEP_S)
    return found


def until_state(sandbox: Sandbox, state: str) -> None:
    """Until the service says that state. Each event has a thread of the SDK to itself, so that an
    earlier one may be told last: what it puts into the object stays until somebody asks again.
    """

    def is_there() -> bool:
        sandbox.refresh_data()
        return sandbox.state == state

    wait_until(is_there, what=f"the state `{state}`")


def failed(daytona: Daytona, name: str) -> tuple[SandboxState | None, str]:
    """(state, reason) of a sandbox that failed. A thread of the SDK puts what a late event tells of
    the sandbox's first moment over a fresh answer, so that one look is not enough.
    """

    def look() -> tuple[SandboxState | None, str] | None:
        found = daytona.get(name)
        return (found.state, found.error_reason) if found.error_reason else None

    told: tuple[SandboxState | None, str] = wait_until(look, what=f"the failure of {name}")
    return told


def delete_failed(daytona: Daytona, name: str) -> None:
    """Delete a sandbox that failed, and return once it is gone. The SDK's own waiting takes a late
    event of the failure for a failure to delete.
    """
    daytona.get(name).delete()

    def gone() -> bool:
        try:
            daytona.get(name)
        except DaytonaNotFoundError:
            return True
        return False

    wait_until(gone, what=f"the end of {name}")
