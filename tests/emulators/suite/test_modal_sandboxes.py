"""The life of emulated sandboxes, of both backends, driven by the real SDK.

Every test compares what the SDK says with the emulator's ground truth.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import modal
import pytest

from tests.emulators.driving.modal import Driver, eventually
from tests.emulators.modal.running import ModalEmulator
from tests.living import alive

BACKENDS = [pytest.param({}, id="v2"), pytest.param({"gpu": "A100"}, id="v1")]


@pytest.fixture(scope="module")
def emulator() -> Iterator[ModalEmulator]:
    with ModalEmulator() as running:
        yield running


@pytest.fixture
def driver(emulator: ModalEmulator, request: pytest.FixtureRequest) -> Iterator[Driver]:
    with Driver(emulator, request.node.name) as driver:
        yield driver
    emulator.do("clear_faults")
    emulator.do(
        "settings",
        gpu_capacity={},
        list_lag_s=0,
        list_page=50,
        terminate_delay_s=0,
        stdio_keep_bytes=8 << 20,
    )


def truth(driver: Driver, sandbox: modal.Sandbox) -> dict[str, Any]:
    return driver.emulator.sandbox(sandbox.object_id)


def live(driver: Driver) -> list[dict[str, Any]]:
    return [one for one in driver.emulator.live() if one["app_id"] == driver.app.app_id]


@pytest.mark.parametrize("options", BACKENDS)
def test_a_command_runs_once_and_its_end_is_told(driver: Driver, options: Any) -> None:
    sandbox = driver.sandbox("sh", "-c", "echo out; echo err >&2; exit 3", **options)
    assert sandbox.stdout.read() == "out\n"
    assert sandbox.stderr.read() == "err\n"
    sandbox.wait()
    assert (sandbox.returncode, sandbox.poll()) == (3, 3)
    told = truth(driver, sandbox)
    assert (told["state"], told["ending"]) == ("ended", "GENERIC_STATUS_FAILURE")
    assert told["backend"] == ("v1" if options else "v2")
    again = modal.Sandbox.from_id(sandbox.object_id, client=driver.client)
    assert again.returncode == 3


@pytest.mark.parametrize("options", BACKENDS)
def test_terminate_ends_every_process_and_frees_the_name(driver: Driver, options: Any) -> None:
    shell = "setsid sleep 1000 & sleep 1000"
    sandbox = driver.sandbox("sh", "-c", shell, name="only", **options)
    eventually(lambda: truth(driver, sandbox)["pid"])
    pid = truth(driver, sandbox)["pid"]
    with pytest.raises(modal.exception.AlreadyExistsError):
        driver.sandbox("true", name="only", **options)
    assert sandbox.terminate(wait=True) == 137
    assert not alive(pid)
    assert live(driver) == []
    other = driver.sandbox("sleep", "1000", name="only", **options)
    found = modal.Sandbox.from_name(driver.name, "only", client=driver.client)
    assert found.object_id == other.object_id


def test_a_name_is_taken_until_the_end_and_not_only_until_terminate(driver: Driver) -> None:
    sandbox = driver.sandbox("sleep", "1000", name="slow")
    driver.emulator.do("settings", terminate_delay_s=1000)
    sandbox.terminate()
    assert sandbox.poll() is None
    with pytest.raises(modal.exception.AlreadyExistsError):
        driver.sandbox("true", name="slow")


def test_only_v2_finds_an_ended_sandbox_by_its_name(driver: Driver) -> None:
    ended = driver.sandbox("true", name="cpu")
    ended.wait()
    driver.sandbox("true", name="gpu", gpu="T4").wait()
    with pytest.raises(modal.exception.NotFoundError):
        modal.Sandbox.from_name(driver.name, "cpu", client=driver.client)
    found = modal.Sandbox.from_name(
        driver.name, "cpu", include_terminated=True, client=driver.client
    )
    assert found.object_id == ended.object_id
    with pytest.raises(modal.exception.NotFoundError):
        modal.Sandbox.from_name(driver.name, "gpu", include_terminated=True, client=driver.client)


@pytest.mark.parametrize("options", BACKENDS)
def test_the_timeout_ends_a_sandbox_and_is_told_apart(driver: Driver, options: Any) -> None:
    sandbox = driver.sandbox("sleep", "1000", timeout=1, **options)
    with pytest.raises(modal.exception.SandboxTimeoutError):
        sandbox.wait()
    assert sandbox.returncode == 124
    assert truth(driver, sandbox)["ending"] == "GENERIC_STATUS_TIMEOUT"


def test_an_idle_sandbox_ends_though_its_entrypoint_works(driver: Driver) -> None:
    # Long enough for the process to be there before it, on a busy machine too.
    sandbox = driver.sandbox("sleep", "1000", idle_timeout=10)
    sandbox.exec("sleep", "0.5").wait()
    sandbox.wait()
    told = truth(driver, sandbox)
    assert told["ending"] == "GENERIC_STATUS_IDLE_TIMEOUT"
    assert told["finished_at_s"] - told["started_at_s"] >= 10.5


def test_without_a_command_a_sandbox_waits_for_processes(driver: Driver) -> None:
    sandbox = driver.sandbox()
    assert sandbox.exec("echo", "hi").stdout.read() == "hi\n"
    assert sandbox.poll() is None


def test_the_list_shows_live_ones_of_both_backends_page_by_page(driver: Driver) -> None:
    driver.emulator.do("settings", list_page=2)
    ended = driver.sandbox("true")
    ended.wait()
    made = [driver.sandbox("sleep", "1000", tags={"n": str(n)}) for n in range(4)]
    made.append(driver.sandbox("sleep", "1000", tags={"n": "4", "kind": "gpu"}, gpu="T4"))
    listed = list(modal.Sandbox.list(app_id=driver.app.app_id, client=driver.client))
    assert [one.object_id for one in listed] == [one.object_id for one in reversed(made)]
    gpus = modal.Sandbox.list(
        app_id=driver.app.app_id, tags={"kind": "gpu", "n": "4"}, client=driver.client
    )
    assert [one.object_id for one in gpus] == [made[4].object_id]


def test_a_listing_learns_late_and_looking_by_id_does_not(driver: Driver) -> None:
    driver.emulator.do("settings", list_lag_s=1000)
    sandbox = driver.sandbox("sleep", "1000")
    assert list(modal.Sandbox.list(app_id=driver.app.app_id, client=driver.client)) == []
    assert modal.Sandbox.from_id(sandbox.object_id, client=driver.client).poll() is None


def test_tags_come_with_the_creation_and_are_replaced_as_a_whole(driver: Driver) -> None:
    for options in ({}, {"gpu": "T4"}):
        sandbox = driver.sandbox("sleep", "1000", tags={"a": "1", "b": "2"}, **options)
        assert sandbox.get_tags() == {"a": "1", "b": "2"}
        sandbox.set_tags({"c": "3"})
        assert truth(driver, sandbox)["tags"] == {"c": "3"}


def test_gpu_sandboxes_queue_for_capacity_in_order(driver: Driver) -> None:
    driver.emulator.do("settings", gpu_capacity={"A100-40GB": 4})
    first = driver.sandbox("sleep", "1000", gpu="A100:4")

    async def body() -> None:
        waiting = asyncio.create_task(
            modal.Sandbox.create.aio(
                "sleep",
                "1000",
                app=driver.app,
                image=driver.image,
                client=driver.client,
                gpu="A100",
                name="second",
            )
        )
        while len(live(driver)) < 2:
            await asyncio.sleep(0.02)
        listed = [
            one
            async for one in modal.Sandbox.list.aio(app_id=driver.app.app_id, client=driver.client)
        ]
        assert [await one.poll.aio() for one in listed] == [None, None]
        assert not waiting.done()
        await first.terminate.aio()
        second = await waiting
        assert truth(driver, second)["state"] in ("starting", "running")

    asyncio.run(body())


def test_terminating_a_queued_sandbox_ends_its_blocked_creation(driver: Driver) -> None:
    driver.emulator.do("settings", gpu_capacity={"H100": 0})

    async def body() -> None:
        waiting = asyncio.create_task(
            modal.Sandbox.create.aio(
                "true", app=driver.app, image=driver.image, client=driver.client, gpu="H100"
            )
        )
        while not live(driver):
            await asyncio.sleep(0.02)
        (queued,) = live(driver)
        assert queued["state"] == "queued"
        found = await modal.Sandbox.from_id.aio(queued["sandbox_id"], client=driver.client)
        await found.terminate.aio()
        with pytest.raises(modal.exception.ConflictError):
            await waiting

    asyncio.run(body())
    assert live(driver) == []


def test_an_unknown_gpu_is_refused(driver: Driver) -> None:
    with pytest.raises(modal.exception.InvalidError):
        driver.sandbox("true", gpu="Z9000")
    assert live(driver) == []


@pytest.mark.parametrize("options", BACKENDS)
def test_stdin_reaches_the_entrypoint(driver: Driver, options: Any) -> None:
    sandbox = driver.sandbox("cat", **options)
    for part in ("one\n", "two\n"):
        sandbox.stdin.write(part)
        sandbox.stdin.drain()
    sandbox.stdin.write_eof()
    sandbox.stdin.drain()
    assert sandbox.stdout.read() == "one\ntwo\n"
    sandbox.wait()
    assert sandbox.returncode == 0


def test_of_much_output_v2_keeps_the_end(driver: Driver) -> None:
    driver.emulator.do("settings", stdio_keep_bytes=1000)
    sandbox = driver.sandbox("sh", "-c", "seq 100000; echo last")
    sandbox.wait()
    said = sandbox.stdout.read()
    assert said.endswith("100000\nlast\n")
    assert len(said) <= 1000


def test_logs_are_found_after_the_end(driver: Driver) -> None:
    for options in ({}, {"gpu": "T4"}):
        sandbox = driver.sandbox("sh", "-c", "for i in 1 2 3; do echo line $i; done", **options)
        sandbox.wait()
        lines = [entry.message for entry in sandbox.logs.tail(2)]
        assert "".join(lines) == "line 2\nline 3\n"


def test_what_a_sandbox_costs_follows_from_what_it_asked_for(driver: Driver) -> None:
    sandbox = driver.sandbox("sleep", "0.3", cpu=2, memory=1024, gpu="A100:4")
    sandbox.wait()
    stats, told = sandbox._experimental_stats(), truth(driver, sandbox)
    seconds = told["finished_at_s"] - told["started_at_s"]
    assert stats.cost is not None
    assert float(stats.cost) == pytest.approx((4 * 2.10 + 2 * 0.1419 + 0.024) * seconds / 3600)
    assert set(stats.cost_by_resource) == {"CPU", "Memory", "GPU"}


def test_stopping_the_app_ends_its_sandboxes_and_frees_its_name(driver: Driver) -> None:
    driver.sandbox("sleep", "1000")
    driver.sandbox("sleep", "1000", gpu="T4")
    driver.app.stop(client=driver.client)
    assert live(driver) == []
    other = modal.App.lookup(driver.name, create_if_missing=True, client=driver.client)
    assert other.app_id != driver.app.app_id


def test_a_readiness_probe_is_asked_until_it_agrees(driver: Driver) -> None:
    sandbox = driver.sandbox(
        "sh",
        "-c",
        "sleep 0.3; touch /tmp/ready; sleep 1000",
        readiness_probe=modal.Probe.with_exec("test", "-e", "/tmp/ready"),
    )
    sandbox.wait_until_ready(timeout=120)
    assert sandbox.exec("test", "-e", "/tmp/ready").wait() == 0


def test_a_hundred_sandboxes_at_once_all_end_right(driver: Driver) -> None:
    async def one(number: int) -> tuple[str, int | None]:
        sandbox = await modal.Sandbox.create.aio(
            "sh",
            "-c",
            f"echo {number}; exit {number % 7}",
            app=driver.app,
            image=driver.image,
            client=driver.client,
        )
        reply = await sandbox.stdout.read.aio()
        await sandbox.wait.aio()
        return reply, sandbox.returncode

    async def body() -> list[tuple[str, int | None]]:
        return await asyncio.gather(*(one(number) for number in range(100)))

    assert asyncio.run(body()) == [(f"{number}\n", number % 7) for number in range(100)]
    assert live(driver) == []
