"""The asynchronous half of the SDK: the same toolbox, another client with ways of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from daytona import (
    AsyncDaytona,
    AsyncSandbox,
    FileDownloadRequest,
    FileUpload,
    PtySize,
    SessionExecuteRequest,
)
from daytona.common.errors import (
    DaytonaConflictError,
    DaytonaError,
    DaytonaFileNotFoundError,
    DaytonaProcessExecutionTimeoutError,
    DaytonaProcessNotFoundError,
    DaytonaSessionEndedError,
    DaytonaTimeoutError,
)

from tests.emulators.daytona.toolbox import contexts
from tests.emulators.suite.daytona_toolbox_world import PATIENCE_S, Place, place

SANDBOXES = 50
CONTENT = bytes(range(256)) * 4096
Work = Callable[[AsyncDaytona, AsyncSandbox], Awaitable[None]]


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with place(tmp_path_factory.mktemp("daytona")) as here:
        yield here


def drive(emulator: Place, work: Work) -> None:
    """Run `work` with a client and a sandbox, which both end with it."""

    async def whole() -> None:
        async with emulator.async_client() as client:
            sandbox = await client.create(timeout=60)
            try:
                await work(client, sandbox)
            finally:
                await client.delete(sandbox, wait=True)

    asyncio.run(whole())


def alone(command: str) -> SessionExecuteRequest:
    return SessionExecuteRequest(command=command, run_async=True)


async def followed(sandbox: AsyncSandbox, session: str, command: str) -> tuple[str, str]:
    stdout: list[str] = []
    stderr: list[str] = []
    await sandbox.process.get_session_command_logs_async(
        session, command, stdout.append, stderr.append
    )
    return "".join(stdout), "".join(stderr)


def test_commands_and_code_run(emulator: Place) -> None:
    async def work(_client: AsyncDaytona, sandbox: AsyncSandbox) -> None:
        answer = await sandbox.process.exec("pwd; echo $A >&2; exit 3", cwd="/tmp", env={"A": "b"})
        assert (answer.exit_code, answer.result) == (3, "/tmp\nb\n")
        assert (await sandbox.process.code_run("print(6 * 7)")).result == "42\n"
        with pytest.raises(DaytonaProcessExecutionTimeoutError):
            await sandbox.process.exec("sleep 60", timeout=1)
        assert await sandbox.get_work_dir() == "/home/daytona"
        assert (await sandbox.get_metrics_latest()).cpu_count == 1

    drive(emulator, work)


def test_sessions_stream_both_outputs_until_the_command_ends(emulator: Place) -> None:
    async def work(_client: AsyncDaytona, sandbox: AsyncSandbox) -> None:
        process = sandbox.process
        await process.create_session("one")
        with pytest.raises(DaytonaConflictError):
            await process.create_session("one")
        lines = "for i in $(seq 2000); do echo o$i; echo e$i >&2; done"
        started = await process.execute_session_command("one", alone(lines))
        stdout, stderr = await followed(sandbox, "one", started.cmd_id)
        assert stdout.split() == [f"o{number}" for number in range(1, 2001)]
        assert stderr.split() == [f"e{number}" for number in range(1, 2001)]
        ended = await process.get_session_command("one", started.cmd_id)
        assert ended.exit_code == 0
        asking = await process.execute_session_command("one", alone("read x; echo got $x"))
        await process.send_session_command_input("one", asking.cmd_id, "it")
        assert await followed(sandbox, "one", asking.cmd_id) == ("it\ngot it\n", "")
        waited = SessionExecuteRequest(command="echo by; exit 1")
        with pytest.raises(DaytonaSessionEndedError):
            await process.execute_session_command("one", waited)
        await process.delete_session("one")
        with pytest.raises(DaytonaProcessNotFoundError):
            await process.get_session("one")

    drive(emulator, work)


def test_a_terminal_shows_what_is_typed_and_how_it_ended(emulator: Place) -> None:
    async def work(_client: AsyncDaytona, sandbox: AsyncSandbox) -> None:
        shown = bytearray()
        handle = await sandbox.process.create_pty_session(
            "terminal", shown.extend, envs={"A": "b"}, pty_size=PtySize(rows=20, cols=70)
        )
        await handle.send_input("stty size; echo $A; exit 4\n")
        ended = await asyncio.wait_for(handle.wait(), PATIENCE_S)
        assert (ended.exit_code, ended.error) == (4, None)
        assert b"20 70\r\nb\r\n" in shown
        second = await sandbox.process.create_pty_session("second", shown.extend)
        assert (await second.resize(PtySize(rows=9, cols=9))).rows == 9
        await second.kill()
        ended = await asyncio.wait_for(second.wait(), PATIENCE_S)
        assert (ended.exit_code, ended.error) == (137, "SIGKILL")
        assert [one.id for one in await sandbox.process.list_pty_sessions()] == ["terminal"]

    drive(emulator, work)


def test_the_interpreter_keeps_its_variables(
    emulator: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contexts, "INTERRUPT_GRACE_S", PATIENCE_S)  # the machine may be busy

    async def work(_client: AsyncDaytona, sandbox: AsyncSandbox) -> None:
        interpreter = sandbox.code_interpreter
        context = await interpreter.create_context()
        await interpreter.run_code("x = 10", context=context)
        assert (await interpreter.run_code("print(x)", context=context)).stdout == "10\n"
        failed = await interpreter.run_code("1 / 0", context=context)
        assert failed.error is not None and failed.error.name == "ZeroDivisionError"
        with pytest.raises(DaytonaTimeoutError):
            await interpreter.run_code("while True: pass", context=context, timeout=1)
        assert (await interpreter.run_code("print(x)", context=context)).stdout == "10\n"
        await interpreter.delete_context(context)
        assert await interpreter.list_contexts() == []

    drive(emulator, work)


def test_files_travel_in_both_directions(emulator: Place, tmp_path: Path) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(CONTENT), 70_000):
            yield CONTENT[at : at + 70_000]

    async def work(_client: AsyncDaytona, sandbox: AsyncSandbox) -> None:
        fs = sandbox.fs
        (tmp_path / "local").write_bytes(CONTENT)
        await fs.upload_file(CONTENT, "a/from-memory")
        await fs.upload_file(str(tmp_path / "local"), "a/from disk ü")
        await fs.upload_file_stream(pieces(), "a/from-stream")
        await fs.upload_files([FileUpload(b"1", "a/one"), FileUpload(b"", "a/empty")])
        names = ["from-memory", "from disk ü", "from-stream", "one", "empty", "none"]
        found = await fs.download_files([FileDownloadRequest(f"a/{name}") for name in names])
        assert [one.result for one in found] == [CONTENT, CONTENT, CONTENT, b"1", b"", None]
        await fs.download_file("a/from-stream", str(tmp_path / "back"))
        assert (tmp_path / "back").read_bytes() == CONTENT
        streamed = [piece async for piece in await fs.download_file_stream("a/from disk ü")]
        assert b"".join(streamed) == CONTENT
        with pytest.raises(DaytonaFileNotFoundError):
            await fs.download_file("a/none")
        with pytest.raises(DaytonaError):
            await fs.upload_file(b"x", "/tmp")
        assert [one.name for one in await fs.list_files("a")] == sorted(names[:-1])
        await fs.delete_file("a", recursive=True)
        assert (await sandbox.process.exec("ls -A")).result == ""

    drive(emulator, work)


def test_git_works(emulator: Place) -> None:
    async def work(_client: AsyncDaytona, sandbox: AsyncSandbox) -> None:
        git = sandbox.git
        await git.init("own.git", bare=True)
        await git.init("repo")
        await sandbox.fs.upload_file(b"x", "repo/file")
        await git.add("repo", ["file"])
        made = await git.commit("repo", "first", "Ada", "ada@example.org")
        await git.remote_add("repo", "origin", "/home/daytona/own.git")
        await git.push("repo", set_upstream=True)
        await git.clone("/home/daytona/own.git", "copy")
        assert (await git.status("copy")).current_branch == "main"
        head = await sandbox.process.exec("git -C copy rev-parse HEAD")
        assert head.result.strip() == made.sha

    drive(emulator, work)


def test_many_sandboxes_work_at_once_and_leave_nothing(emulator: Place) -> None:
    async def one(client: AsyncDaytona, number: int) -> str:
        sandbox = await client.create(timeout=120)
        await sandbox.fs.upload_file(f"{number}".encode(), "number")
        await sandbox.process.create_session("work")
        command = "bash -c 'for i in 1 2 3; do sleep 0.1; echo $i; done; cat number' </dev/null"
        started = await sandbox.process.execute_session_command("work", alone(command))
        stdout, _stderr = await followed(sandbox, "work", started.cmd_id)
        ended = await sandbox.process.get_session_command("work", started.cmd_id)
        assert ended.exit_code == 0
        await client.delete(sandbox, wait=True)
        return stdout

    async def work(client: AsyncDaytona, _sandbox: AsyncSandbox) -> None:
        outputs = await asyncio.gather(*(one(client, number) for number in range(SANDBOXES)))
        assert outputs == [f"1\n2\n3\n{number}\n" for number in range(SANDBOXES)]

    drive(emulator, work)
    assert [one.id for one in emulator.world.sandboxes.values() if one.live] == []
