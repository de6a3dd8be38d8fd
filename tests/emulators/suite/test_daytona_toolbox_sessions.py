"""Sessions through the SDK: state between commands, logs while they grow, and how both end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from daytona import Sandbox, SessionExecuteRequest
from daytona.common.errors import (
    DaytonaConflictError,
    DaytonaError,
    DaytonaGoneError,
    DaytonaProcessNotFoundError,
    DaytonaSessionEndedError,
)

from tests.emulators.suite.daytona_toolbox_world import PATIENCE_S, Place, place, until

OUT, ERR = "\x01\x01\x01", "\x02\x02\x02"
TWO_STREAMS = "echo out1; sleep 0.1; echo err1 >&2"


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with place(tmp_path_factory.mktemp("daytona")) as here:
        yield here


@pytest.fixture(scope="module")
def sandbox(emulator: Place) -> Sandbox:
    return emulator.client().create(timeout=60)


@pytest.fixture
def session(sandbox: Sandbox, request: pytest.FixtureRequest) -> str:
    name = request.node.name[:60]
    sandbox.process.create_session(name)
    return name


def waited(command: str) -> SessionExecuteRequest:
    return SessionExecuteRequest(command=command)


def alone(command: str, *, silent: bool = False) -> SessionExecuteRequest:
    return SessionExecuteRequest(command=command, run_async=True, suppress_input_echo=silent)


def exit_code(sandbox: Sandbox, session: str, command_id: str) -> float | None:
    return sandbox.process.get_session_command(session, command_id).exit_code


def follow(sandbox: Sandbox, session: str, command_id: str) -> tuple[list[str], list[str]]:
    stdout: list[str] = []
    stderr: list[str] = []
    work = sandbox.process.get_session_command_logs_async(
        session, command_id, stdout.append, stderr.append
    )
    asyncio.run(work)
    return stdout, stderr


@contextmanager
def following(sandbox: Sandbox, session: str, command_id: str) -> Iterator[tuple[list[str], list]]:
    """Standard output as it comes, and what broke the stream off; ends when the stream has."""
    seen: list[str] = []
    problems: list[Exception] = []

    def work() -> None:
        try:
            get = sandbox.process.get_session_command_logs_async
            asyncio.run(get(session, command_id, seen.append, seen.append))
        except DaytonaError as error:
            problems.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    yield seen, problems
    thread.join(PATIENCE_S)
    assert not thread.is_alive(), "the stream never ended"


def test_a_session_is_there_from_its_creation_to_its_deletion(
    emulator: Place, sandbox: Sandbox, session: str
) -> None:
    assert sandbox.process.get_session(session).commands == []
    assert session in [one.session_id for one in sandbox.process.list_sessions()]
    with pytest.raises(DaytonaConflictError):
        sandbox.process.create_session(session)
    started = sandbox.process.execute_session_command(session, alone("sleep 86403 & sleep 86404"))
    until(lambda: "sleep 86404" in emulator.commands(sandbox), "the sleep")
    sandbox.process.delete_session(session)
    until(lambda: not _sleeps(emulator, sandbox, "8640"), "the end of what the session ran")
    for gone in (
        lambda: sandbox.process.get_session(session),
        lambda: sandbox.process.delete_session(session),
        lambda: sandbox.process.get_session_command_logs(session, started.cmd_id),
    ):
        with pytest.raises(DaytonaProcessNotFoundError) as caught:
            gone()
        assert (caught.value.status_code, caught.value.code) == (404, "PROCESS_NOT_FOUND")


def test_a_command_that_is_waited_for_answers_its_streams_apart_and_with_their_marks(
    sandbox: Sandbox, session: str
) -> None:
    answer = sandbox.process.execute_session_command(session, waited(TWO_STREAMS))
    assert answer.exit_code == 0
    assert answer.output == f"{OUT}out1\n{ERR}err1\n"
    assert (answer.stdout, answer.stderr) == ("out1\n", "err1\n")
    one_write = "cat <<END\na\n\nb\nEND"
    lines = sandbox.process.execute_session_command(session, waited(one_write))
    assert lines.output == f"{OUT}a\n{OUT}\n{OUT}b\n", "each line has its mark"
    command = sandbox.process.get_session(session).commands[0]
    assert (command.id, command.command, command.exit_code) == (answer.cmd_id, TWO_STREAMS, 0)


def test_variables_and_the_directory_stay_from_command_to_command(
    emulator: Place, sandbox: Sandbox, session: str
) -> None:
    run = sandbox.process.execute_session_command
    run(session, waited("cd /tmp; export A=5; touch here"))
    answer = run(session, waited("pwd; echo $A; cat <<'END'\nit's a \"text\"\nEND"))
    assert answer.stdout == '/tmp\n5\nit\'s a "text"\n'
    assert emulator.host(sandbox, "/tmp/here").exists()
    assert run(session, waited("(exit 7)")).exit_code == 7
    assert run(session, waited("if then")).exit_code not in (0, None), "a mistake ends no session"
    assert run(session, waited("echo still here")).stdout == "still here\n"


def test_a_command_by_itself_has_an_id_at_once_and_an_exit_code_when_it_ends(
    emulator: Place, sandbox: Sandbox, session: str
) -> None:
    command = "echo begun; while [ ! -e /tmp/go ]; do sleep 0.05; done; (exit 9)"
    started = sandbox.process.execute_session_command(session, alone(command))
    assert started.cmd_id
    assert (started.exit_code, started.output, started.stdout) == (None, None, "")
    assert exit_code(sandbox, session, started.cmd_id) is None
    emulator.host(sandbox, "/tmp/go").touch()
    until(lambda: exit_code(sandbox, session, started.cmd_id) is not None, "the exit code")
    assert exit_code(sandbox, session, started.cmd_id) == 9
    logs = sandbox.process.get_session_command_logs(session, started.cmd_id)
    assert (logs.output, logs.stdout, logs.stderr) == (f"{OUT}begun\n", "begun\n", "")


def test_a_followed_log_begins_at_its_beginning_and_ends_with_the_command(
    sandbox: Sandbox, session: str
) -> None:
    command = "echo a; echo b; echo x >&2; sleep 0.3; printf 'no newline'"
    started = sandbox.process.execute_session_command(session, alone(command))
    stdout, stderr = follow(sandbox, session, started.cmd_id)
    assert ("".join(stdout), "".join(stderr)) == ("a\nb\nno newline\n", "x\n")
    assert exit_code(sandbox, session, started.cmd_id) == 0, "the stream ended before the command"
    again = follow(sandbox, session, started.cmd_id)
    assert "".join(again[0]) == "a\nb\nno newline\n", "a second follower sees all of it again"


def test_many_lines_pass_a_follower_whole_and_in_order(sandbox: Sandbox, session: str) -> None:
    started = sandbox.process.execute_session_command(session, alone("seq 1 20000; seq 1 50 >&2"))
    stdout, stderr = follow(sandbox, session, started.cmd_id)
    assert "".join(stdout).split() == [str(number) for number in range(1, 20001)]
    assert "".join(stderr).split() == [str(number) for number in range(1, 51)]


def test_text_of_any_script_survives_the_cuts_of_a_stream(sandbox: Sandbox, session: str) -> None:
    line = "ünïcödé 日本語 🎉 "
    started = sandbox.process.execute_session_command(
        session, alone(f"for i in $(seq 400); do printf '%s' '{line}'; done; echo")
    )
    assert "".join(follow(sandbox, session, started.cmd_id)[0]) == line * 400 + "\n"


def test_input_reaches_the_command_and_shows_in_its_log_unless_silenced(
    sandbox: Sandbox, session: str
) -> None:
    run, send = sandbox.process.execute_session_command, sandbox.process.send_session_command_input
    loud = run(session, alone("read line; echo got $line"))
    send(session, loud.cmd_id, "one")
    until(lambda: exit_code(sandbox, session, loud.cmd_id) == 0, "the end of the first")
    assert sandbox.process.get_session_command_logs(session, loud.cmd_id).stdout == "one\ngot one\n"
    silent = run(session, alone("read line; echo got $line", silent=True))
    send(session, silent.cmd_id, "two\n")
    until(lambda: exit_code(sandbox, session, silent.cmd_id) == 0, "the end of the second")
    assert sandbox.process.get_session_command_logs(session, silent.cmd_id).stdout == "got two\n"
    with pytest.raises(DaytonaGoneError) as caught:
        send(session, silent.cmd_id, "three")
    assert caught.value.code == "COMMAND_ALREADY_COMPLETED"


def test_standard_input_stays_open_for_a_command_by_itself_and_is_empty_for_others(
    sandbox: Sandbox, session: str
) -> None:
    run = sandbox.process.execute_session_command
    assert run(session, waited("read x || echo nothing")).stdout == "nothing\n"
    started = run(session, alone("cat", silent=True))
    for word in ("one\n", "two\n"):
        sandbox.process.send_session_command_input(session, started.cmd_id, word)
        until(lambda word=word: word in _stdout(sandbox, session, started.cmd_id), word)
    assert exit_code(sandbox, session, started.cmd_id) is None


def test_a_command_that_ends_the_shell_never_has_an_exit_code(
    sandbox: Sandbox, session: str
) -> None:
    started = sandbox.process.execute_session_command(session, alone("echo bye; exit 7"))
    until(lambda: _refuses(sandbox, session), "the end of the shell")
    logs = sandbox.process.get_session_command_logs(session, started.cmd_id)
    assert (logs.output, logs.stdout) == (f"{OUT}bye\n", "bye\n")
    assert exit_code(sandbox, session, started.cmd_id) is None


def test_whoever_waits_for_a_command_that_ends_the_shell_is_told(
    sandbox: Sandbox, session: str
) -> None:
    with pytest.raises(DaytonaSessionEndedError) as caught:
        sandbox.process.execute_session_command(session, waited("set -e; false"))
    assert (caught.value.status_code, caught.value.code) == (410, "SESSION_ENDED")


def test_deleting_a_session_ends_its_streams_in_good_order(sandbox: Sandbox, session: str) -> None:
    started = sandbox.process.execute_session_command(session, alone("echo seen; sleep 86405"))
    with following(sandbox, session, started.cmd_id) as (seen, problems):
        until(lambda: seen == ["seen\n"], "the first line")
        sandbox.process.delete_session(session)
    assert (seen, problems) == (["seen\n"], [])


def test_a_stream_breaks_off_when_its_sandbox_dies(emulator: Place) -> None:
    sandbox = emulator.client().create(timeout=60)
    sandbox.process.create_session("doomed")
    started = sandbox.process.execute_session_command("doomed", alone("echo seen; sleep 86406"))
    with following(sandbox, "doomed", started.cmd_id) as (seen, problems):
        until(lambda: seen == ["seen\n"], "the first line")
        box = emulator.world.sandboxes[sandbox.id].box
        assert box is not None
        emulator.run(box.kill())
    assert seen == ["seen\n"]
    assert len(problems) == 1, "the stream ended as if the command had"


def test_what_a_command_leaves_in_the_background_goes_on(
    emulator: Place, sandbox: Sandbox, session: str
) -> None:
    command = "(sleep 0.5; echo late; touch /tmp/late) & echo soon"
    answer = sandbox.process.execute_session_command(session, waited(command))
    assert (answer.exit_code, answer.stdout) == (0, "soon\n")
    until(lambda: emulator.host(sandbox, "/tmp/late").exists(), "the background work")
    logged = "soon\nlate\n"
    until(lambda: _stdout(sandbox, session, answer.cmd_id) == logged, "its line in the log")


def test_sessions_do_not_wait_for_each_other(emulator: Place, sandbox: Sandbox) -> None:
    for number in range(8):
        sandbox.process.create_session(f"many-{number}")
        request = alone(f"while [ ! -e /tmp/all ]; do sleep 0.02; done; echo {number}")
        sandbox.process.execute_session_command(f"many-{number}", request)
    emulator.host(sandbox, "/tmp/all").touch()
    for number in range(8):
        (command,) = sandbox.process.get_session(f"many-{number}").commands
        stdout, _stderr = follow(sandbox, f"many-{number}", command.id)
        assert stdout == [f"{number}\n"]


def _sleeps(emulator: Place, sandbox: Sandbox, seconds: str) -> list[str]:
    return [one for one in emulator.commands(sandbox) if one.startswith(f"sleep {seconds}")]


def _stdout(sandbox: Sandbox, session: str, command_id: str) -> str:
    return sandbox.process.get_session_command_logs(session, command_id).stdout or ""


def _refuses(sandbox: Sandbox, session: str) -> bool:
    try:
        sandbox.process.execute_session_command(session, waited("echo after"))
    except DaytonaSessionEndedError as error:
        return error.status_code == 410
    return False
