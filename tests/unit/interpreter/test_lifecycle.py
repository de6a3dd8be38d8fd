"""Starting, ending and losing a sandbox; executions that take too long or are interrupted."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from fleetctl import Interpreter, InterpreterError
from fleetctl.interpreter.session import conversation
from tests.interpreters import Place
from tests.unit.interpreter.conftest import Make


def from_now_on(interpreter: Interpreter, **seconds: float) -> None:
    """Other limits for the executions and the sandboxes to come: short ones end what is to be
    ended, and would end what is to succeed on a busy machine.
    """
    runtime = interpreter._runtime
    runtime._options = replace(runtime._options, **seconds)  # type: ignore[arg-type]


def test_start_and_shutdown_may_be_said_twice(make: Make, place: Place) -> None:
    interpreter = make()
    interpreter.shutdown()
    interpreter.start()
    interpreter.execute("x = 1")
    interpreter.start()
    assert interpreter.execute("print(x)") == "1\n"
    assert place.sandboxes() == 1
    interpreter.shutdown()
    interpreter.shutdown()
    assert place.sandboxes() == 0


def test_execute_starts_what_is_not_started_and_a_new_sandbox_knows_nothing(make: Make) -> None:
    interpreter = make()
    interpreter.execute("x = 1")
    interpreter.shutdown()
    assert "NameError" in interpreter.execute("print(x)")


def test_a_sandbox_that_is_lost_between_two_executions_is_told_once(make: Make) -> None:
    interpreter = make()
    dies = "import os, threading; x = 1; threading.Timer(0.2, os._exit, (3,)).start()"
    interpreter.execute(dies)
    talk = interpreter._runtime._talk
    assert talk is not None
    deadline_s = time.monotonic() + 120
    while not talk.over and time.monotonic() < deadline_s:
        time.sleep(0.02)
    with pytest.raises(InterpreterError, match="ended between two calls") as told:
        interpreter.execute("print(x)")
    assert "next execute() starts a new sandbox" in told.value.hint
    assert "NameError" in interpreter.execute("print(x)")


def test_the_block_ends_the_sandbox_and_lets_errors_through(place: Place) -> None:
    with pytest.raises(LookupError), Interpreter(provider=place.name) as interpreter:
        interpreter.execute("x = 1")
        assert place.sandboxes() == 1
        raise LookupError
    assert place.sandboxes() == 0


def test_every_method_has_a_twin_for_coroutines(place: Place) -> None:
    async def use() -> list[Any]:
        async with Interpreter(provider=place.name) as one, Interpreter(provider=place.name) as two:
            codes = [(one, "import time; time.sleep(0.1); SUBMIT(n=1)"), (two, "SUBMIT(n=2)")]
            await one.astart()
            return await asyncio.gather(*(which.aexecute(code) for which, code in codes))

    assert [result.n for result in asyncio.run(use())] == [1, 2]
    assert place.sandboxes() == 0


def test_many_interpreters_in_many_threads_do_not_disturb_one_another(place: Place) -> None:
    def work(number: int) -> int:
        with Interpreter(provider=place.name) as interpreter:
            interpreter.execute(f"kept = {number}")
            return int(interpreter.execute("SUBMIT(kept=kept * 2)").kept)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(12))) == [number * 2 for number in range(12)]


def test_executions_of_one_interpreter_follow_one_another(modal: Interpreter) -> None:
    modal.execute("seen = []")
    code = "seen.append('in'); import time; time.sleep(0.02); seen.append('out')"
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: modal.execute(code), range(4)))
    assert modal.execute("SUBMIT(seen=seen)").seen == ["in", "out"] * 4


def test_code_that_takes_too_long_loses_its_sandbox_and_the_next_starts_anew(
    make: Make, place: Place
) -> None:
    interpreter = make(execute_timeout=0.5)
    interpreter.start()
    with pytest.raises(InterpreterError, match=r"did not end within 0\.5 s") as told:
        interpreter.execute("import time\nwhile True: time.sleep(1)")
    assert "never run again" in told.value.hint
    assert place.sandboxes() == 0
    from_now_on(interpreter, execute_timeout_s=60.0)
    interpreter.execute("x = 1")
    assert interpreter.execute("print(x)") == "1\n"


def test_code_that_holds_the_interpreter_is_ended_all_the_same(make: Make, place: Place) -> None:
    interpreter = make(execute_timeout=0.5)
    with pytest.raises(InterpreterError, match="did not end"):
        interpreter.execute("import re; re.match('(a*)*b', 'a' * 40)")
    assert place.sandboxes() == 0


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("os._exit(3)", "exited with code 3"),
        ("os.kill(os.getpid(), 9)", "signal 9"),
        ("import ctypes; ctypes.string_at(0)", "signal 11"),
    ],
)
def test_code_that_ends_its_process_is_told_and_is_never_run_again(
    code: str, why: str, make: Make
) -> None:
    interpreter = make(volume_name="runs")
    count = "import os; open('/data/runs', 'a').write('x'); "
    with pytest.raises(InterpreterError, match=why) as told:
        interpreter.execute(count + code)
    assert "never run again" in told.value.hint
    assert interpreter.execute("print(open('/data/runs').read())") == "x\n"


def test_a_sandbox_ends_at_the_end_of_its_lifetime(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So long it may take to learn why what is written to reads no more.
    monkeypatch.setattr(conversation, "INTERRUPT_S", 60.0)
    interpreter = make(timeout=1.0, execute_timeout=60)
    with pytest.raises(InterpreterError, match="lifetime of 1 s has passed"):
        interpreter.execute("import time; time.sleep(60)")  # or while it starts, on a busy machine
    from_now_on(interpreter, timeout_s=600.0)
    assert interpreter.execute("SUBMIT(a=1)").a == 1


def test_a_sandbox_that_has_nothing_to_do_ends_and_the_next_execution_starts_anew(
    make: Make,
) -> None:
    # More than passes between its start and the execution, also on a busy machine.
    interpreter = make(idle_timeout=5.0)
    interpreter.execute("x = 1")
    patience = threading.Event()
    for _ in range(1200):
        if "not started" in repr(interpreter):
            break
        patience.wait(0.1)
    else:
        pytest.fail("the sandbox stayed")
    assert "NameError" in interpreter.execute("print(x)")


def test_a_cancelled_execution_is_interrupted_and_the_state_stays(
    modal: Interpreter, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Code that heeds the interrupt late, on a busy machine, would lose its sandbox.
    monkeypatch.setattr(conversation, "INTERRUPT_S", 60.0)
    begun = threading.Event()
    modal.tools = {"begin": begun.set}

    async def use() -> str:
        await modal.aexecute("x = 5")
        task = asyncio.create_task(modal.aexecute("begin()\nimport time\ntime.sleep(600)"))
        await asyncio.to_thread(begun.wait, 300)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return str(await modal.aexecute("print(x)"))

    assert asyncio.run(use()) == "5\n"


def test_a_cancelled_execution_that_does_not_heed_loses_its_sandbox(
    modal: Interpreter, place: Place
) -> None:
    begun = threading.Event()
    modal.tools = {"begin": begun.set}
    stubborn = (
        "import time, signal\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "begin()\n"
        "while True: time.sleep(1)"
    )

    async def use() -> str:
        task = asyncio.create_task(modal.aexecute(stubborn))
        await asyncio.to_thread(begun.wait, 300)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return str(await modal.aexecute("print('anew')"))

    assert asyncio.run(use()) == "anew\n"


def test_a_dropped_interpreter_takes_its_sandbox_along(place: Place) -> None:
    interpreter = Interpreter(provider=place.name)
    interpreter.start()
    assert place.sandboxes() == 1
    del interpreter
    gc.collect()
    patience = threading.Event()
    for _ in range(600):
        if place.sandboxes() == 0:
            return
        patience.wait(0.1)
    pytest.fail("the sandbox stayed")


def test_each_execution_is_told_to_the_callback_when_it_begins_and_ends(
    modal: Interpreter,
) -> None:
    parts: list[dict[str, Any]] = []
    modal.execution_event_callback = parts.append
    modal.execute("SUBMIT(a=1)")
    modal.execute("print('x')")
    modal.execute("1/0")
    assert [event["phase"] for event in parts] == ["start", "complete"] * 3
    ends = parts[1::2]
    assert [event["result_kind"] for event in ends] == ["final_output", "stdout", "stderr"]
    assert [event["success"] for event in ends] == [True, True, False]
    assert ends[0]["output_keys"] == ["a"]
    assert parts[0]["code_preview"] == "SUBMIT(a=1)"
    assert parts[0]["code_hash"] == parts[1]["code_hash"]


def test_a_callback_that_fails_disturbs_nothing(modal: Interpreter) -> None:
    def fail(_: dict[str, Any]) -> None:
        raise LookupError

    modal.execution_event_callback = fail
    assert modal.execute("SUBMIT(a=1)").a == 1


def test_the_representation_tells_where_it_runs(modal: Interpreter, place: Place) -> None:
    assert repr(modal) == f"<Interpreter on {place.name}, not started>"
    modal.start()
    assert repr(modal) == f"<Interpreter on {place.name}, started>"


def test_secrets_are_variables_of_the_code(make: Make) -> None:
    interpreter = make(secrets={"TOKEN": "abc"})
    assert interpreter.execute("import os; print(os.environ['TOKEN'])") == "abc\n"
    assert "abc" not in repr(interpreter)


def test_a_file_beside_the_code_can_be_imported(modal: Interpreter) -> None:
    code = "open('beside.py', 'w').write('x = 3')\nimport beside\nprint(beside.x)"
    assert modal.execute(code) == "3\n"
