"""What a controller's event loop is, and those of the threads that an SDK makes in its process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from fleetctl.daemon.client import spawn
from fleetctl.daemon.client.socket_client import send_request
from tests.living import alive

# What a controller does, and then Modal's SDK: a loop for itself, in a thread, by `asyncio.run`.
PROGRAM = """
import asyncio, sys, threading
from fleetctl.common.event_loop import loop_factory
from fleetctl.common.errors import Refused

def tell(who):
    async def told():
        print(who, type(asyncio.get_running_loop()).__module__)
    return told()

try:
    factory = loop_factory()
except Refused as error:
    print(f"refused: {error}; {error.hint}")
    sys.exit()
with asyncio.Runner(loop_factory=factory) as runner:
    runner.run(tell("ours"))
thread = threading.Thread(target=lambda: asyncio.run(tell("theirs")))
thread.start()
thread.join()
"""
# As Python does from 3.14 on.
DEPRECATED = """
import asyncio, warnings
set_policy = asyncio.set_event_loop_policy

def warning(policy):
    warnings.warn("`asyncio.set_event_loop_policy` is deprecated", DeprecationWarning, stacklevel=2)
    set_policy(policy)

asyncio.set_event_loop_policy = warning
"""
WITHOUT = "import sys; sys.modules['uvloop'] = None\n"
OF_UVLOOP = "ours uvloop\ntheirs uvloop\n"
OF_ASYNCIO = "ours asyncio.unix_events\ntheirs asyncio.unix_events\n"


def said(program: str, wanted: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env={**os.environ, "FLEETCTL_LOOP": wanted},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("wanted", ["", "auto", "uvloop"])
def test_all_loops_are_those_of_uvloop(wanted: str) -> None:
    assert said(PROGRAM, wanted) == OF_UVLOOP


def test_nobody_is_warned_that_policies_of_loops_will_end() -> None:
    assert said(DEPRECATED + PROGRAM, "") == OF_UVLOOP


def test_uvloop_can_be_declined() -> None:
    assert said(PROGRAM, "asyncio") == OF_ASYNCIO


def test_without_the_package_loops_are_asyncios_own() -> None:
    assert said(WITHOUT + PROGRAM, "") == OF_ASYNCIO


def test_who_insists_on_uvloop_is_told_that_it_is_not_there() -> None:
    assert said(WITHOUT + PROGRAM, "uvloop") == (
        "refused: FLEETCTL_LOOP is `uvloop`, and the package `uvloop` is not installed; "
        "pip install uvloop, or unset FLEETCTL_LOOP\n"
    )


def test_an_unknown_loop_is_refused() -> None:
    assert said(PROGRAM, "fast") == (
        "refused: FLEETCTL_LOOP is `fast`; it must be one of auto, uvloop, asyncio; "
        "unset FLEETCTL_LOOP\n"
    )


@pytest.mark.parametrize(("wanted", "loaded"), [("auto", True), ("asyncio", False)])
def test_a_controller_that_was_started_in_the_background_has_the_loop_and_tells_of_it(
    tmp_path: Path, wanted: str, loaded: bool
) -> None:
    with _background(tmp_path, {"FLEETCTL_LOOP": wanted}) as told:
        maps = Path(f"/proc/{told['pid']}/maps").read_text(encoding="utf-8")
        assert ("/uvloop/loop." in maps) == loaded
        assert told["loop"] == ("uvloop" if loaded else "asyncio")


@contextmanager
def _background(home: Path, env: Mapping[str, str]) -> Iterator[Mapping[str, object]]:
    """What a controller says of itself; it is ended afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in env.items():
            patch.setenv(name, value)
        told = spawn.start_controller(home, idle_exit_s=60.0)
    try:
        yield told
    finally:
        send_request(home, {"verb": "shutdown"})
        while alive(int(str(told["pid"]))):
            time.sleep(0.01)
