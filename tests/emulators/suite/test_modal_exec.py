"""Processes in emulated sandboxes, through the task command router and the real SDK."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import modal
import pytest
from modal_proto import task_command_router_pb2 as tcr_pb2

from tests.emulators.driving.gates import gate
from tests.emulators.driving.modal import Driver, eventually
from tests.emulators.modal.running import ModalEmulator

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


def execs(driver: Driver, sandbox: modal.Sandbox) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = driver.emulator.sandbox(sandbox.object_id)["execs"]
    return found


@pytest.mark.parametrize("options", BACKENDS)
def test_a_process_has_streams_variables_and_a_code(driver: Driver, options: Any) -> None:
    sandbox = driver.sandbox("sleep", "1000", **options)
    secret = modal.Secret.from_dict({"HIDDEN": "s3"})
    process = sandbox.exec(
        "sh",
        "-c",
        "cat; echo $SHOWN $HIDDEN >&2; pwd; exit 5",
        env={"SHOWN": "yes"},
        secrets=[secret],
        workdir="/tmp",
    )
    process.stdin.write(b"typed\n")
    process.stdin.write_eof()
    process.stdin.drain()
    assert process.stdout.read() == "typed\n/tmp\n"
    assert process.stderr.read() == "yes s3\n"
    assert (process.wait(), process.poll()) == (5, 5)
    assert [one["code"] for one in execs(driver, sandbox)] == [5]


def test_a_signal_and_a_missing_program_have_the_shells_codes(driver: Driver) -> None:
    sandbox = driver.sandbox("sleep", "1000")
    assert sandbox.exec("sh", "-c", "kill -TERM $$").wait() == 143
    missing = sandbox.exec("no-such-program")
    assert missing.wait() == 127
    assert "no-such-program" in missing.stderr.read()


def test_a_process_past_its_timeout_is_killed_with_its_children(driver: Driver) -> None:
    sandbox = driver.sandbox("sleep", "1000")
    process = sandbox.exec("sh", "-c", "sleep 999 & sleep 998", timeout=1)
    # The SDK's own timer says -1, unless word of the end comes first.
    assert process.wait() in (-1, 137)
    eventually(lambda: execs(driver, sandbox)[0]["timed_out"])
    eventually(lambda: "sleep 99" not in sandbox.exec("ps", "ax").stdout.read())
    assert sandbox.poll() is None


def test_a_terminal_is_one(driver: Driver) -> None:
    sandbox = driver.sandbox("sleep", "1000")
    process = sandbox.exec("sh", "-c", "tty; stty size; read x; echo got $x", pty=True)
    process.stdin.write("word\n")
    process.stdin.drain()
    said = process.stdout.read()
    assert process.wait() == 0
    assert "/dev/pts/" in said
    assert said.replace("\r", "").endswith("got word\n")


def test_large_output_arrives_whole_and_in_order(driver: Driver) -> None:
    sandbox = driver.sandbox("sleep", "1000")
    process = sandbox.exec("seq", "400000")
    assert process.stdout.read() == "".join(f"{n}\n" for n in range(1, 400_001))


def test_a_cut_connection_resumes_reading_where_it_was(driver: Driver) -> None:
    sandbox = driver.sandbox("sleep", "1000")
    script = "for i in 1 2 3 4 5 6; do echo $i; sleep 0.1; done"
    process = sandbox.exec("sh", "-c", script)
    driver.emulator.do("fault", rpc="TaskExecStdioRead", status="DISCONNECT", when="after", count=3)
    assert process.stdout.read() == "1\n2\n3\n4\n5\n6\n"
    assert process.wait() == 0
    assert driver.emulator.state()["faults"][0]["hits"] == 3


def test_a_lost_router_comes_back_and_nothing_ran_twice(driver: Driver) -> None:
    sandbox = driver.sandbox("sleep", "1000")
    process = sandbox.exec("sh", "-c", "echo begun >> /tmp/log; sleep 0.5; cat /tmp/log; exit 9")
    driver.emulator.do("lose", endpoint="router", refuse_s=0.3)
    assert process.wait() == 9
    assert process.stdout.read() == "begun\n"
    assert len(execs(driver, sandbox)) == 1


def test_a_start_whose_answer_is_lost_starts_once(driver: Driver) -> None:
    sandbox = driver.sandbox("sleep", "1000")
    driver.emulator.do("fault", rpc="TaskExecStart", status="UNAVAILABLE", when="after", count=2)
    process = sandbox.exec("sh", "-c", "echo x >> /tmp/count; cat /tmp/count")
    assert process.stdout.read() == "x\n"
    assert len(execs(driver, sandbox)) == 1


def test_stdin_that_is_sent_again_is_taken_once(driver: Driver) -> None:
    sandbox = driver.sandbox("sleep", "1000")
    process = sandbox.exec("cat")
    driver.emulator.do("fault", rpc="TaskExecStdinWrite", status="INTERNAL", when="after", count=2)
    for part in (b"one ", b"two ", b"three"):
        process.stdin.write(part)
        process.stdin.drain()
    process.stdin.write_eof()
    process.stdin.drain()
    assert process.stdout.read() == "one two three"


def test_a_file_of_many_pieces_survives_a_cut_while_it_is_written(
    driver: Driver, tmp_path: Path
) -> None:
    sandbox = driver.sandbox("sleep", "1000")
    data = bytes(range(256)) * 20_000
    (tmp_path / "big").write_bytes(data)
    driver.emulator.do(
        "fault", rpc="TaskExecStdinWriteStream", status="UNAVAILABLE", when="after", count=1
    )
    sandbox.filesystem.copy_from_local(tmp_path / "big", "/data/in/big")
    sandbox.filesystem.copy_to_local("/data/in/big", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == data


def test_the_file_system_of_a_sandbox_is_reached(driver: Driver) -> None:
    sandbox = driver.sandbox("sleep", "1000")
    files = sandbox.filesystem
    files.write_text("hello", "/srv/a/b.txt")
    assert files.read_text("/srv/a/b.txt") == "hello"
    assert [(one.name, one.size) for one in files.list_files("/srv/a")] == [("b.txt", 5)]
    assert files.stat("/srv").is_dir()
    files.make_directory("/srv/c/d")
    with pytest.raises(modal.exception.SandboxFilesystemNotFoundError):
        files.read_text("/srv/none")
    with pytest.raises(modal.exception.SandboxFilesystemDirectoryNotEmptyError):
        files.remove("/srv/a")
    files.remove("/srv/a", recursive=True)
    with pytest.raises(modal.exception.SandboxFilesystemNotFoundError):
        files.stat("/srv/a")


def test_processes_of_a_sandbox_that_died_are_gone_and_no_wait_hangs(driver: Driver) -> None:
    sandbox = driver.sandbox("sleep", "1000")
    process = sandbox.exec("sh", "-c", "echo early; sleep 1000")
    assert next(iter(process.stdout)) == "early\n"
    driver.emulator.do("preempt", sandbox_id=sandbox.object_id)
    with pytest.raises(modal.exception.NotFoundError):
        process.wait()
    with pytest.raises((modal.exception.NotFoundError, modal.exception.ConflictError)):
        sandbox.exec("true")


def test_a_token_that_has_expired_is_exchanged_for_a_new_one(driver: Driver) -> None:
    sandbox = driver.sandbox("sleep", "1000")
    assert sandbox.exec("true").wait() == 0
    driver.emulator.do("fault", rpc="TaskExecStart", status="UNAUTHENTICATED")
    assert sandbox.exec("true").wait() == 0
    assert len(execs(driver, sandbox)) == 2


def test_many_processes_at_once_in_one_sandbox(driver: Driver) -> None:
    sandbox = driver.sandbox("sleep", "1000")

    async def one(number: int) -> str:
        process = await sandbox.exec.aio("sh", "-c", f"sleep 0.2; echo {number}")
        reply = await process.stdout.read.aio()
        assert await process.wait.aio() == 0
        return reply

    async def body() -> list[str]:
        return await asyncio.gather(*(one(number) for number in range(40)))

    assert asyncio.run(body()) == [f"{number}\n" for number in range(40)]
    assert len(execs(driver, sandbox)) == 40


def test_nothing_asks_the_service_while_a_process_runs(driver: Driver) -> None:
    sandbox = driver.sandbox("sleep", "1000")
    with gate() as door:
        process = sandbox.exec("python3", "-c", door.python())
        before = driver.emulator.rpcs()

        def opened() -> None:
            eventually(lambda: driver.emulator.rpcs() != before)
            time.sleep(1.0)  # of waiting, in which nothing is asked
            door.open()

        opener = threading.Thread(target=opened)
        opener.start()
        assert process.wait() == 0
        opener.join()
    after = driver.emulator.rpcs()
    extra = {name: after[name] - before.get(name, 0) for name in after}
    assert {name: count for name, count in extra.items() if count} == {"TaskExecWait": 1}


def test_reading_the_same_bytes_again_gives_the_same_bytes(driver: Driver) -> None:
    """By the protocol itself: the SDK only ever reads on."""
    sandbox = driver.sandbox("sleep", "1000")
    process = sandbox.exec("sh", "-c", "printf abcdef")
    process.wait()
    task_id = driver.emulator.sandbox(sandbox.object_id)["task_id"]
    exec_id = execs(driver, sandbox)[0]["exec_id"]

    async def body() -> list[bytes]:
        from grpclib.client import Channel
        from modal_proto.task_command_router_grpc import TaskCommandRouterStub

        answer = driver.emulator.do("router_access", sandbox_id=sandbox.object_id)
        host, _, port = answer["url"].removeprefix("http://").partition(":")
        found = []
        async with Channel(host, int(port)) as channel:
            stub = TaskCommandRouterStub(channel)
            for offset in (0, 2, 2, 6):
                request = tcr_pb2.TaskExecStdioReadRequest(
                    task_id=task_id,
                    exec_id=exec_id,
                    offset=offset,
                    file_descriptor=tcr_pb2.TASK_EXEC_STDIO_FILE_DESCRIPTOR_STDOUT,
                )
                metadata = {"authorization": f"Bearer {answer['jwt']}"}
                parts = await stub.TaskExecStdioRead(request, metadata=metadata)
                found.append(b"".join(part.data for part in parts))
            unknown = tcr_pb2.TaskExecWaitRequest(task_id=task_id, exec_id=str(uuid.uuid4()))
            with pytest.raises(Exception, match="not found"):
                await stub.TaskExecWait(unknown, metadata=metadata)
        return found

    assert asyncio.run(body()) == [b"abcdef", b"cdef", b"cdef", b""]
