"""Code in a sandbox hands parts of its work to recursive queries.

Their loop is dspy's, and is tested with it in tests/frameworks; here it is one step: the query
itself is the code, which finds the context in `context`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from fleetctl import DaytonaInterpreter, Interpreter, InterpreterError
from fleetctl.common.install import install_hint
from fleetctl.interpreter.asking import rlm
from fleetctl.interpreter.asking.questions import Questions
from fleetctl.interpreter.result import FinalOutput, read_submitted
from tests.interpreters import Place
from tests.unit.interpreter.conftest import Make


def one_step(
    runner: rlm.CodeRunner, questions: Questions, *, query: str, context: str, **_: Any
) -> str:
    runner.start()
    done = runner.executed(query, {"context": context})
    if isinstance(done.value, FinalOutput):
        return str(read_submitted(done.value)["answer"])
    if done.failed:
        raise RuntimeError(done.value.strip())
    return done.value


@pytest.fixture(autouse=True)
def _loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rlm, "answer_query", one_step)
    monkeypatch.setattr(rlm, "check_installed", lambda: None)


def shout(prompt: str) -> str:
    return prompt.upper()


MEET = """
import os
mine = context
answer = llm_query(context) + str(os.path.exists('parents.txt'))
print('only here')
SUBMIT(answer=answer)
"""
BATCH = """
mine = 'the parent'
open('parents.txt', 'w').close()
queries = [{'query': code, 'context': c} for c in 'abc']
found = rlm_query_batched(queries, concurrency=3)
SUBMIT(found=found, mine=mine)
"""


@pytest.mark.parametrize("kind", [Interpreter, DaytonaInterpreter])
def test_a_batch_works_at_once_in_contexts_of_the_sandbox_and_keeps_its_order(
    kind: type[Interpreter], make: Make, place: Place
) -> None:
    together = threading.Barrier(3)  # nobody is answered before all have asked
    sandboxes = set()

    def model(prompt: str) -> str:
        together.wait(timeout=60)
        sandboxes.add(place.sandboxes())
        return prompt.upper()

    interpreter = make(kind, sub_lm=model)
    result = interpreter.execute(BATCH, {"code": MEET})
    assert result == FinalOutput({"found": ["ATrue", "BTrue", "CTrue"], "mine": "the parent"})
    assert sandboxes == {1}
    assert interpreter.execute("print(mine)") == "the parent\n"


def test_a_query_in_a_sandbox_of_its_own_shares_nothing_but_the_budget(
    make: Make, place: Place
) -> None:
    sandboxes = []

    def model(prompt: str) -> str:
        sandboxes.append(place.sandboxes())
        return prompt.upper()

    options = {"children": "sandbox", "max_sandboxes": 1, "max_llm_calls": 3}
    interpreter = make(sub_lm=model, **options)
    code = "open('parents.txt', 'w').close(); SUBMIT(a=rlm_query(code, context='a'))"
    assert interpreter.execute(code, {"code": MEET}) == FinalOutput({"a": "AFalse"})
    assert (sandboxes, place.sandboxes()) == ([2], 1)
    again = str(interpreter.execute("rlm_query('1')"))
    assert "1 sandboxes are used (1 by recursive queries" in again
    assert interpreter.execute("print(llm_query_batched(['b', 'c']))") == "['B', 'C']\n"
    assert "max_llm_calls allows 3 here" in str(interpreter.execute("llm_query('d')"))


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Interpreter]:
    monkeypatch.delenv("FLEETCTL_PROVIDER", raising=False)
    return lambda **options: Interpreter(provider="local", **{"sub_lm": shout, **options})


def test_below_the_greatest_depth_a_query_is_a_plain_question_or_an_error(
    local: Callable[..., Interpreter],
) -> None:
    nested = "SUBMIT(answer=rlm_query(context, context=context))"
    with local(max_depth=2) as interpreter:
        # It runs at depth 1, and what it asks runs at depth 2; what that one asks is not run.
        said = interpreter.execute("SUBMIT(a=sub_rlm(nested, context=nested))", {"nested": nested})
    assert said == FinalOutput({"a": f"{nested}\n\n{nested}".upper()})
    with local(max_depth=0, at_depth="raise") as interpreter:
        said = interpreter.execute("rlm_query('x')")
    assert "this query has depth 0, and max_depth is 0" in str(said)


def test_what_queries_leave_of_their_share_can_be_used_by_others(
    local: Callable[..., Interpreter],
) -> None:
    with local(max_llm_calls=7) as interpreter:
        code = (
            "two = ['SUBMIT(answer=llm_query_batched([context] * 2))'] * 3\n"
            "print(rlm_query_batched(two, context='x')[0])"
        )
        assert interpreter.execute(code) == "['X', 'X']\n"
        said = str(interpreter.execute(code))
        assert "6 calls of the language model are used (6 by recursive queries" in said
        assert interpreter.execute("print(llm_query('y'))") == "Y\n"


def test_each_failure_of_a_batch_is_told_or_stands_in_its_place(
    local: Callable[..., Interpreter],
) -> None:
    with local() as interpreter:
        interpreter.execute("asked = ['SUBMIT(answer=1)', '1/0', {'query': '', 'context': 'x'}]")
        said = str(interpreter.execute("rlm_query_batched(asked[:2])"))
        assert "1/2 failed: prompt[1]: [Error] ZeroDivisionError" in said
        said = str(interpreter.execute("print(rlm_query_batched(asked[:2], on_error='text'))"))
        assert said.startswith("['1', '[ERROR] [Error] ZeroDivisionError")
        assert "prompt[2] is `''`" in str(interpreter.execute("rlm_query_batched(asked)"))
        assert interpreter.execute("print(rlm_query_batched([]))") == "[]\n"


@pytest.mark.parametrize("children", ["context", "sandbox"])
def test_queries_end_with_the_code_that_asked_for_them(
    children: str, make: Make, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, ended, go_on = asyncio.Event(), asyncio.Event(), threading.Event()

    def model(prompt: str) -> str:
        here.call_soon_threadsafe(asked.set)
        go_on.wait(timeout=60)
        return prompt

    def lasting(runner: rlm.CodeRunner, questions: Questions, **_: Any) -> str:
        runner.start()
        questions.query("answered when nobody wants it any more")
        with pytest.raises(RuntimeError, match="the recursive query has ended"):
            questions.query("another")
        with pytest.raises(InterpreterError, match="has ended"):
            runner.executed("1")
        here.call_soon_threadsafe(ended.set)
        return ""

    async def cancelled() -> None:
        nonlocal here
        here = asyncio.get_running_loop()
        work = asyncio.create_task(interpreter.aexecute("rlm_query_batched(['a', 'b'])"))
        await asked.wait()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert place.sandboxes() == 1
        go_on.set()
        await ended.wait()

    here: asyncio.AbstractEventLoop
    monkeypatch.setattr(rlm, "answer_query", lasting)
    interpreter = make(sub_lm=model, children=children, batch_concurrency=1)
    asyncio.run(cancelled())
    assert interpreter.execute("print(1)") == "1\n"


def test_without_dspy_the_way_to_it_is_told(
    monkeypatch: pytest.MonkeyPatch, local: Callable[..., Interpreter]
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with local() as interpreter:
        said = str(interpreter.execute("rlm_query('x')"))
    assert f"`{install_hint('dspy')}`" in said
