"""Starts of interpreters on each cloud that do not come to their end: the answer is lost, who
waited gives up, the program is interrupted or exits. The ground truth says that nothing is left.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fleetctl import Interpreter
from fleetctl.common.errors import Unavailable
from tests.contracts.provider_worlds import eventually
from tests.emulators.daytona.running import DaytonaEmulator
from tests.emulators.driving.modal import eventually as soon
from tests.emulators.modal.running import ModalEmulator
from tests.servers.daytona_fleet import DURATIONS_S

SLOW_S = 3.0
HANGS_S = 60.0  # a start that is to be met on its way
END_S = 120.0  # against a hang alone
PROGRAM = """\
import os, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from fleetctl import Interpreter
interpreter = Interpreter(provider=sys.argv[1])
if sys.argv[2] == "main":
    interpreter.start()
if sys.argv[2] == "caught":
    try:
        interpreter.start()
    except KeyboardInterrupt:
        print("caught", flush=True)
        os._exit(0)  # without what is done at exit
threading.Thread(target=interpreter.start, daemon=True).start()
sys.stdin.readline()
if sys.argv[2] == "busy":  # Python's exit begins, and waits for a thread that works
    ThreadPoolExecutor().submit(time.sleep, float(sys.argv[3]))
"""
# Of the two clouds, a sandbox that starts cannot be deleted on this one.
ON_DAYTONA = pytest.mark.only_all(reason="programs that end amid a start, on Modal", of=("modal",))
BUSY_S = 3.0  # the SDK looks once a second how far a start is


@dataclass(frozen=True, slots=True)
class Cloud:
    """made: every sandbox there ever was; held: those that are paid for now; slow: starts take a
    while; hang: they go on for so long that they are on their way whatever comes between; go_on:
    lets them end, once what has started is asked to go; lose_answer: that of the next create, whose
    effect has happened.
    """

    name: str
    variables: Mapping[str, str]
    made: Callable[[], list[Any]]
    held: Callable[[], list[Any]]
    slow: Callable[[], object]
    hang: Callable[[], object]
    go_on: Callable[[], object]
    lose_answer: Callable[[], object]
    hide: Callable[[], object]
    put_right: Callable[[], None]


@pytest.fixture(scope="module")
def modal_cloud() -> Iterator[Cloud]:
    with ModalEmulator() as emulator:
        create = partial(emulator.do, "fault", rpc="SandboxCreateV2", when="after")
        look_up = partial(emulator.do, "fault", rpc="SandboxGetFromNameV2")
        yield Cloud(
            name="modal",
            variables=emulator.env,
            made=lambda: emulator.state()["sandboxes"],
            held=emulator.live,
            slow=partial(create, delay_s=SLOW_S, count=1),
            hang=partial(create, delay_s=HANGS_S, count=1),
            go_on=lambda: None,  # what starts there can be ended
            lose_answer=partial(create, status="INTERNAL", count=50),  # the SDK asks again
            hide=partial(look_up, status="NOT_FOUND", count=1),
            put_right=partial(emulator.do, "clear_faults"),
        )


@pytest.fixture(scope="module")
def daytona_cloud() -> Iterator[Cloud]:
    with DaytonaEmulator() as emulator:

        def put_right() -> None:
            emulator.remove_faults()
            emulator.set(durations_s=DURATIONS_S)

        def hang() -> None:
            emulator.forget_requests()
            emulator.set(durations_s={"starting": HANGS_S})

        def go_on() -> None:
            soon(lambda: emulator.count("deleteSandbox") > 0)
            emulator.advance(HANGS_S)

        create = partial(emulator.fault, operation="createSandbox", when="after", count=1)
        look_up = partial(emulator.fault, operation="getSandbox", count=1)
        yield Cloud(
            name="daytona",
            variables=emulator.env,
            made=lambda: emulator.state()["sandboxes"],
            held=lambda: emulator.state()["present"],
            slow=partial(emulator.set, durations_s={"starting": SLOW_S}),
            hang=hang,
            go_on=go_on,
            lose_answer=partial(create, status=504),
            hide=partial(look_up, status=404),
            put_right=put_right,
        )


@pytest.fixture(params=["modal", "daytona"])
def cloud(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cloud]:
    cloud: Cloud = request.getfixturevalue(f"{request.param}_cloud")
    for name, value in {**cloud.variables, "FLEETCTL_HOME": str(tmp_path / "home")}.items():
        monkeypatch.setenv(name, value)
    for sort in ("MODAL", "DAYTONA"):
        monkeypatch.setenv(f"FLEETCTL_{sort}_CONNECT_S", "120")  # the machine may be busy
    with Interpreter(provider=cloud.name) as warm:  # images are built, and the SDK is imported
        warm.execute("pass")
    yield cloud
    cloud.put_right()
    assert cloud.held() == []


def test_what_a_create_made_whose_answer_is_lost_is_adopted(cloud: Cloud) -> None:
    before = len(cloud.made())
    cloud.lose_answer()
    with Interpreter(provider=cloud.name) as interpreter:
        assert interpreter.execute("SUBMIT(a=1)").a == 1
    assert len(cloud.made()) == before + 1
    assert cloud.held() == []


@pytest.mark.parametrize("cloud", ["daytona"], indirect=True)
def test_a_create_that_starts_when_its_answer_is_lost_is_adopted(cloud: Cloud) -> None:
    cloud.slow()
    test_what_a_create_made_whose_answer_is_lost_is_adopted(cloud)


@pytest.mark.parametrize("cloud", ["daytona"], indirect=True)
def test_a_create_that_lands_late_and_starts_slowly_leaves_nothing(cloud: Cloud) -> None:
    cloud.slow()  # and what starts cannot be deleted there
    test_a_create_that_lands_after_its_answer_was_lost_leaves_nothing(cloud)


def test_a_create_that_lands_after_its_answer_was_lost_leaves_nothing(cloud: Cloud) -> None:
    before = len(cloud.made())
    cloud.hide()
    cloud.lose_answer()
    with pytest.raises(Unavailable, match=r"sandbox .*cannot be (made|looked up)"):
        Interpreter(provider=cloud.name).start()
    assert len(cloud.made()) == before + 1
    assert cloud.held() == []


def test_a_start_that_is_cancelled_leaves_nothing_and_another_may_follow(cloud: Cloud) -> None:
    cloud.hang()

    async def tale() -> None:
        interpreter = Interpreter(provider=cloud.name)
        start = asyncio.create_task(interpreter.astart())

        async def starts() -> bool:
            return bool(await asyncio.to_thread(cloud.held))

        await eventually(starts, "its sandbox was made")
        start.cancel()
        await asyncio.to_thread(cloud.go_on)
        with pytest.raises(asyncio.CancelledError):
            await start
        assert cloud.held() == []
        cloud.put_right()
        assert (await interpreter.aexecute("SUBMIT(a=1)")).a == 1
        await interpreter.ashutdown()

    asyncio.run(tale())
    assert cloud.held() == []


@ON_DAYTONA
@pytest.mark.parametrize(
    "where, told", [("main", "KeyboardInterrupt"), ("caught", "caught")], ids=["ends", "is-caught"]
)
def test_ctrl_c_during_a_start_leaves_nothing(cloud: Cloud, where: str, told: str) -> None:
    with begun(cloud, where) as program:
        program.send_signal(signal.SIGINT)
        cloud.go_on()
        said, _ = program.communicate(timeout=END_S)
    assert told in said
    assert cloud.held() == []


@ON_DAYTONA
@pytest.mark.parametrize("where", ["thread", "busy"])
def test_a_program_that_exits_during_a_start_leaves_nothing(cloud: Cloud, where: str) -> None:
    with begun(cloud, where) as program:
        assert program.stdin is not None
        program.stdin.write("\n")
        program.stdin.flush()
        cloud.go_on()
        program.communicate(timeout=END_S)
    assert cloud.held() == []


@contextmanager
def begun(cloud: Cloud, where: str) -> Iterator[subprocess.Popen[str]]:
    """A program whose interpreter is starting: its sandbox is made, and not ready."""
    cloud.hang()
    before = len(cloud.made())
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, cloud.name, where, str(BUSY_S)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        soon(lambda: len(cloud.made()) > before)
        yield program
    finally:
        program.kill()
        program.wait()
