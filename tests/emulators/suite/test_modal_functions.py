"""The emulator's functions, driven by the real SDK: deployed, called, failing, retried, cancelled.

What the SDK says is compared with the emulator's truth: which call ran where, and how often its
body began.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import modal
import pytest

from tests.emulators.driving.gates import Gate, gate
from tests.emulators.driving.modal import PATIENCE_S, Driver, eventually
from tests.emulators.modal.running import ModalEmulator


@pytest.fixture(scope="module")
def emulator() -> Iterator[ModalEmulator]:
    with ModalEmulator() as running:
        yield running


@pytest.fixture
def driver(emulator: ModalEmulator, request: pytest.FixtureRequest) -> Iterator[Driver]:
    with Driver(emulator, request.node.name) as driver:
        yield driver


def deploy(driver: Driver, body: Callable[..., Any], **options: Any) -> modal.Function:
    """Deploys one function and looks it up by its name, as another process would."""
    app = modal.App(driver.name)
    app.function(image=driver.image, serialized=True, name="work", **options)(body)
    app.deploy(client=driver.client)
    return modal.Function.from_name(driver.name, "work", client=driver.client).hydrate()


def containers(driver: Driver, function: modal.Function) -> list[dict[str, Any]]:
    """All that ever were, of this function alone."""
    found = driver.emulator.state()["functions"]["containers"]
    return [one for one in found if one["function_id"] == function.object_id]


def live(driver: Driver, function: modal.Function) -> list[dict[str, Any]]:
    return [one for one in containers(driver, function) if one["live"]]


def truth(driver: Driver, call: modal.FunctionCall[Any], index: int = 0) -> dict[str, Any]:
    """What the emulator knows of one input of a call."""
    calls = driver.emulator.state()["functions"]["calls"]
    inputs = next(one for one in calls if one["call_id"] == call.object_id)["inputs"]
    return next(one for one in inputs if one["index"] == index)


def held(door: Gate) -> Callable[[bytes], bytes]:
    """The body of a function that goes on once the gate is open."""
    waits = door.python()

    def work(data: bytes = b"") -> bytes:
        exec(waits)
        return data + b"!"

    return work


def began(driver: Driver, call: modal.FunctionCall[Any]) -> bool:
    return bool(truth(driver, call)["began"])


def test_calls_run_in_one_warm_container_and_bring_results_back(driver: Driver) -> None:
    def work(x: int, *, y: int = 0) -> dict[str, int]:
        import os

        return {"sum": x + y, "pid": os.getpid()}

    function = deploy(driver, work, max_containers=1)
    results = [function.remote(n, y=1) for n in range(10)]
    assert [one["sum"] for one in results] == list(range(1, 11))
    assert len({one["pid"] for one in results}) == 1
    (container,) = containers(driver, function)
    assert container["inputs_taken"] == 10


def test_an_exception_comes_back_as_itself_and_the_container_lives_on(driver: Driver) -> None:
    def work(n: int) -> Any:
        if n == 0:
            raise LookupError("nothing here")
        return (lambda: n) if n == 1 else __import__("threading").Lock()

    function = deploy(driver, work, max_containers=1)
    with pytest.raises(LookupError, match="nothing here"):
        function.remote(0)
    assert function.remote(1)() == 1
    with pytest.raises(TypeError, match="pickle"):
        function.remote(2)
    assert len(containers(driver, function)) == 1


def deploy_module(driver: Driver, directory: Path, text: str) -> None:
    """Deploys the functions of a module that lies in a file, as `modal deploy` does. In the text
    `app` is the app of the test."""
    path = directory / "smoke_module.py"
    head = f"import modal\napp = modal.App({driver.name!r}, image=modal.Image.debian_slim())\n"
    path.write_text(head + text)
    spec = importlib.util.spec_from_file_location("smoke_module", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["smoke_module"] = module
    try:
        spec.loader.exec_module(module)
        module.app.deploy(client=driver.client)
    finally:
        del sys.modules["smoke_module"]


def test_a_function_of_a_module_file_runs_in_its_container(driver: Driver, tmp_path: Path) -> None:
    deploy_module(
        driver,
        tmp_path,
        "OFFSET = 5\n"
        "@app.function()\n"
        "def shifted(n):\n"
        "    return n + OFFSET, __file__, modal.current_function_call_id()\n"
        "@app.function()\n"
        "async def later(n):\n"
        "    import asyncio\n"
        "    await asyncio.sleep(0)\n"
        "    return n * 10\n",
    )
    function = modal.Function.from_name(driver.name, "shifted", client=driver.client)
    call = function.spawn(1)
    assert call.get() == (6, "/root/smoke_module.py", call.object_id)
    later = modal.Function.from_name(driver.name, "later", client=driver.client)
    assert later.remote(3) == 30


def test_a_container_that_never_becomes_ready_fails_its_inputs(
    driver: Driver, tmp_path: Path
) -> None:
    deploy_module(
        driver,
        tmp_path,
        "import os\n"
        "if __file__.startswith('/root/'): os._exit(5)\n"
        "@app.function()\n"
        "def work(): pass\n",
    )
    function = modal.Function.from_name(driver.name, "work", client=driver.client)
    with pytest.raises(modal.exception.RemoteError, match="exited with 5 before"):
        function.remote()
    assert live(driver, function) == []


def test_a_spawned_call_is_polled_and_found_again_by_its_id(driver: Driver) -> None:
    # Arguments above 8 KiB and results above 2 MiB travel as blobs.
    data = b"x" * (3 * 1024 * 1024)
    with gate() as door:
        function = deploy(driver, held(door))
        call = function.spawn(data)
        with pytest.raises(TimeoutError):
            call.get(timeout=0)
        found = modal.FunctionCall.from_id(call.object_id, client=driver.client)
        door.open()
        assert found.get(timeout=PATIENCE_S) == data + b"!"
    assert found.get(timeout=0) == data + b"!"
    assert found.num_inputs() == 1
    driver.emulator.do("expire_call", call_id=call.object_id)
    with pytest.raises(modal.exception.OutputExpiredError):
        found.get(timeout=0)


def test_a_map_runs_every_input_once_within_the_limit_of_containers(driver: Driver) -> None:
    def work(n: int) -> tuple[int, int]:
        import os

        return n * n, os.getpid()

    function = deploy(driver, work, max_containers=2)
    results = list(function.map(range(60)))
    assert [one[0] for one in results] == [n * n for n in range(60)]
    ever = containers(driver, function)
    assert 1 <= len(ever) <= 2
    assert sum(one["inputs_taken"] for one in ever) == 60
    spawned = function.experimental_spawn_map(range(5))
    assert [one[0] for one in spawned.iter()] == [0, 1, 4, 9, 16]


def test_failures_are_retried_as_often_as_the_policy_says(driver: Driver) -> None:
    volume = driver.volume("attempts", version=2)

    def work(good_from: int) -> int:
        import pathlib
        import subprocess

        marks = pathlib.Path("/v/marks")
        count = len(marks.read_text()) if marks.exists() else 0
        marks.write_text("x" * (count + 1))
        subprocess.run(["sync", "/v"], check=True)
        if count + 1 < good_from:
            raise RuntimeError(f"attempt {count + 1}")
        return count + 1

    policy = modal.Retries(max_retries=2, initial_delay=0.0)
    function = deploy(driver, work, retries=policy, max_containers=1, volumes={"/v": volume})
    call = function.spawn(3)
    assert call.get() == 3
    assert (len(truth(driver, call)["began"]), truth(driver, call)["failures"]) == (3, 2)
    call = function.spawn(100)
    with pytest.raises(RuntimeError):
        call.get()
    assert len(truth(driver, call)["began"]) == 3


def test_an_input_that_takes_too_long_times_out_and_takes_its_container_along(
    driver: Driver,
) -> None:
    def work(seconds: float) -> str:
        import time

        time.sleep(seconds)
        return "slept"

    # The second call keeps it on a busy machine too.
    function = deploy(driver, work, timeout=10, max_containers=1)
    with pytest.raises(modal.exception.FunctionTimeoutError, match="timeout of 10s"):
        function.remote(100)
    assert function.remote(0) == "slept"
    first, second = containers(driver, function)
    assert (first["live"], second["live"]) == (False, True)


def test_a_container_that_exits_under_an_input_fails_that_input(driver: Driver) -> None:
    def work(code: int) -> str:
        import os

        if code:
            os._exit(code)
        return "fine"

    function = deploy(driver, work, max_containers=1)
    with pytest.raises(modal.exception.RemoteError, match="exit code: 7"):
        function.remote(7)
    assert function.remote(0) == "fine"


def test_a_function_that_cannot_be_loaded_fails_its_inputs(driver: Driver) -> None:
    import tests.emulators.driving.modal as absent_in_containers

    function = deploy(driver, absent_in_containers.eventually)
    with pytest.raises((ModuleNotFoundError, modal.exception.ExecutionError), match="tests"):
        function.remote(1)


def _sleeping() -> Callable[[float], str]:
    def work(seconds: float) -> str:
        import time

        time.sleep(seconds)
        return "slept"

    return work


def test_cancelling_stops_what_runs_and_what_waits(driver: Driver) -> None:
    function = deploy(driver, _sleeping(), max_containers=1)
    running, waiting = function.spawn(100), function.spawn(100)
    eventually(lambda: began(driver, running))
    running.cancel()
    for call in (running, waiting):
        if call is waiting:
            waiting.cancel()
        with pytest.raises(modal.exception.RemoteError):
            call.get(timeout=PATIENCE_S)
        assert truth(driver, call)["outcome"] == "terminated"
    assert function.remote(0) == "slept"
    (container,) = containers(driver, function)
    assert container["live"]


def test_cancelling_with_its_container_ends_that_at_once(driver: Driver) -> None:
    function = deploy(driver, _sleeping(), max_containers=1)
    call = function.spawn(100)
    eventually(lambda: began(driver, call))
    call.cancel(terminate_containers=True)
    eventually(lambda: not live(driver, function))
    assert function.remote(0) == "slept"


def test_the_input_of_a_preempted_container_is_scheduled_again(driver: Driver) -> None:
    with gate() as door:
        function = deploy(driver, held(door), max_containers=1)
        call = function.spawn()
        eventually(lambda: began(driver, call))
        (container,) = live(driver, function)
        driver.emulator.do("preempt_container", task_id=container["task_id"])
        door.open()
        assert call.get(timeout=PATIENCE_S) == b"!"
    known = truth(driver, call)
    assert (len(known["began"]), known["rescheduled"], known["failures"]) == (2, 1, 0)
    assert len({one["task_id"] for one in known["began"]}) == 2


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_spawn_whose_answer_is_lost_runs_once(driver: Driver, when: str) -> None:
    function = deploy(driver, _sleeping())
    known = len(driver.emulator.state()["functions"]["calls"])
    driver.emulator.do("fault", rpc="FunctionMap", status="UNAVAILABLE", when=when)
    call = function.spawn(0)
    assert call.get() == "slept"
    assert len(driver.emulator.state()["functions"]["calls"]) == known + 1
    assert len(truth(driver, call)["began"]) == 1


def test_logs_hold_what_each_call_printed(driver: Driver) -> None:
    def work(word: str) -> None:
        import sys

        print("out", word)
        print("err", word, file=sys.stderr)

    function = deploy(driver, work, max_containers=1)
    calls = [function.spawn(word) for word in ("one", "two")]
    for call in calls:
        call.get()
    text = "".join(entry.message for entry in calls[1].logs.tail(20))
    assert "out two" in text and "err two" in text and "one" not in text
    everything = "".join(entry.message for entry in function.logs.tail(20))
    assert "out one" in everything and "out two" in everything
