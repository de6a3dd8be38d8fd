"""Functions of the host that code in the sandbox calls."""

from __future__ import annotations

import asyncio
import contextvars
import threading

import pytest

from fleetctl import Interpreter
from tests.unit.interpreter.conftest import Make


def test_code_calls_a_function_of_the_host_and_gets_its_value(modal: Interpreter) -> None:
    modal.tools = {"join": lambda *parts, sep="-": sep.join(parts)}
    assert modal.execute("SUBMIT(a=join('x', 'y', sep='+'), b=join())").output == {
        "a": "x+y",
        "b": "",
    }


def test_a_tool_that_is_no_more_is_no_name_any_more(modal: Interpreter) -> None:
    modal.tools["now"] = lambda: 1
    assert modal.execute("print(now())") == "1\n"
    del modal.tools["now"]
    assert modal.execute("now()") == "[Error] NameError: name 'now' is not defined\n"


def test_what_a_tool_raises_is_an_error_of_the_code_that_called_it(modal: Interpreter) -> None:
    def fail() -> None:
        raise LookupError("no such thing")

    modal.tools = {"fail": fail}
    assert modal.execute("fail()") == "[Error] RuntimeError: LookupError: no such thing\n"
    code = "try:\n    fail()\nexcept RuntimeError as error:\n    SUBMIT(caught=str(error))"
    assert modal.execute(code).caught == "LookupError: no such thing"


def test_a_value_that_is_no_json_becomes_its_text(modal: Interpreter) -> None:
    modal.tools = {"odd": lambda: {1, 2} - {2}}
    assert modal.execute("print(repr(odd()))") == "'{1}'\n"


def test_arguments_that_are_no_json_are_an_error_of_the_code(modal: Interpreter) -> None:
    modal.tools = {"take": lambda value: value}
    said = modal.execute("take({1})")
    assert said.startswith("[Error] TypeError: take: the arguments cannot be written as JSON")
    said = modal.execute("take('x' * 20_000_000)")
    assert said.startswith("[Error] ValueError: take: the arguments have 20000")
    assert modal.execute("print(take(1))") == "1\n"


def test_a_coroutine_function_is_a_tool_too(modal: Interpreter) -> None:
    async def later(value: int) -> int:
        await asyncio.sleep(0)
        return value + 1

    modal.tools = {"later": later}
    assert modal.execute("print(later(1))") == "2\n"


def test_threads_of_the_code_may_call_at_once_and_each_gets_its_own_answer(
    modal: Interpreter,
) -> None:
    together = threading.Barrier(8, timeout=60)

    def meet(number: int) -> int:
        together.wait()  # passes only when all eight calls are under way
        return number * 10

    modal.tools = {"meet": meet}
    code = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(8) as pool:\n"
        "    SUBMIT(got=list(pool.map(meet, range(8))))"
    )
    assert modal.execute(code).got == [number * 10 for number in range(8)]


def test_a_tool_may_use_another_interpreter(make: Make) -> None:
    inner, outer = make(), make()
    outer.tools = {"delegate": lambda code: inner.execute(code).answer}
    assert outer.execute("print(delegate('SUBMIT(answer=6 * 7)'))") == "42\n"


def test_a_fork_of_the_code_cannot_call_the_host(modal: Interpreter) -> None:
    modal.tools = {"tool": lambda: 1}
    code = (
        "import os\n"
        "if os.fork() == 0:\n"
        "    try:\n        tool()\n"
        "    except RuntimeError as error:\n        print(error)\n"
        "else:\n    os.wait()"
    )
    assert (
        modal.execute(code) == "only the process that the host started can call it, not its forks\n"
    )
    assert modal.execute("print(tool())") == "1\n"


@pytest.mark.parametrize("name", ["SUBMIT", "print", "two words", "1st", ""])
def test_a_tool_that_code_could_not_call_is_refused(name: str, modal: Interpreter) -> None:
    with pytest.raises(ValueError, match="a tool cannot be called"):
        modal.tools = {name: print}
    modal.tools[name] = print
    with pytest.raises(ValueError, match="a tool cannot be called"):
        modal.execute("1")
    del modal.tools[name]


def test_a_tool_must_be_a_function(modal: Interpreter) -> None:
    with pytest.raises(ValueError, match="tool `x` is a int, not a function"):
        modal.tools = {"x": 5}  # type: ignore[dict-item]


def test_a_tool_sees_the_context_variables_of_who_executes_the_code(modal: Interpreter) -> None:
    who = contextvars.ContextVar("who", default="nobody")
    modal.tools = {"who": who.get}
    modal.start()
    token = who.set("the caller")
    assert modal.execute("print(who())") == "the caller\n"
    who.reset(token)
    assert modal.execute("print(who())") == "nobody\n"
