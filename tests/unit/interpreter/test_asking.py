"""Code in a sandbox asks the language model of its interpreter."""

from __future__ import annotations

import asyncio
import threading

import pytest

from fleetctl import DaytonaInterpreter, FinalOutput, Interpreter, as_dict
from tests.emulators.llm.server import Fault, Model

BATCH = "SUBMIT(summaries=llm_query_batched([f'p{n}' for n in range(%d)]))"


@pytest.mark.parametrize("kind", [Interpreter, DaytonaInterpreter])
def test_a_batch_is_asked_at_once_and_answered_in_order(
    kind: type[Interpreter] | type[DaytonaInterpreter],
) -> None:
    together = threading.Barrier(48)  # nobody is answered before all have asked

    def model(prompt: str) -> str:
        together.wait(timeout=300)
        return prompt.upper()

    with kind(provider="local", sub_lm=model) as interpreter:
        result = interpreter.execute(BATCH % 48)
    assert isinstance(result, FinalOutput)
    assert as_dict(result) == {"summaries": [f"P{n}" for n in range(48)]}


@pytest.mark.parametrize("call", ["llm_query('  ')", "llm_query_batched(['a', '  '])"])
def test_an_empty_prompt_is_a_value_error_as_in_a_task(call: str) -> None:
    asked: list[str] = []
    code = f"try:\n    {call}\nexcept ValueError as error:\n    SUBMIT(why=str(error))"
    with Interpreter(provider="local", sub_lm=lambda it: asked.append(it) or "x") as interpreter:
        result = interpreter.execute(code)
    assert isinstance(result, FinalOutput)
    assert "must be a text that is not empty" in as_dict(result)["why"]
    assert asked == []


def test_the_limit_is_one_for_all_and_nothing_of_a_batch_above_it_is_asked() -> None:
    asked = []

    async def model(prompt: str, model: str = "") -> list[str]:
        await asyncio.sleep(0)
        asked.append(prompt)
        if prompt == "bad":
            raise OSError("no server")
        return [prompt + model]

    with Interpreter(provider="local", sub_lm=model, max_llm_calls=4) as interpreter:
        assert interpreter.execute("print(llm_query('a', model='-x'))") == "a-x\n"
        said = str(interpreter.execute("llm_query_batched(['b', 'bad'])"))
        assert "1/2 failed: prompt[1]: OSError: no server" in said
        said = str(interpreter.execute("llm_query_batched(['c', 'd'])"))
        assert "3 calls of the language model are used and 2 more are asked for" in said
        assert "it must be a text that is not empty" in str(interpreter.execute("llm_query('')"))
        assert interpreter.execute("print(llm_query_batched([]))") == "[]\n"
    assert sorted(asked) == ["a", "b", "bad"]


def test_a_question_without_an_answer_ends_by_its_timeout() -> None:
    never = threading.Event()
    with Interpreter(
        provider="local", sub_lm=lambda _: never.wait(), llm_call_timeout=0.1
    ) as interpreter:
        assert "no answer within 0.1 s" in str(interpreter.execute("llm_query('x')"))
    never.set()


def test_with_an_endpoint_a_model_server_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        server = await Model(key="sk-0123456789", models=("tiny", "big")).start()
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789")
        monkeypatch.setenv("FLEETCTL_LLM_MODEL", "tiny")
        try:
            async with Interpreter(provider="local", endpoint="env") as interpreter:
                code = "print(llm_query('hello'), llm_query('hello', model='big'))"
                assert "hello" in str(await interpreter.aexecute(code))
                assert [one["model"] for one in server.asked] == ["tiny", "big"]
                server.faults.append(Fault(429))
                said = str(await interpreter.aexecute("llm_query('x')"))
                assert "the model server answered 429" in said
                said = await interpreter.aexecute("print(llm_query('x', on_error='text'))")
                assert isinstance(said, str) and not said.startswith("[ERROR]")
                server.faults.append(Fault("wrong-json"))
                said = await interpreter.aexecute("print(llm_query('x', on_error='text'))")
                assert "[ERROR] RuntimeError: the model server answered without a text" in str(said)
                for wrong in ("llm_query('  ')", "llm_query_batched(['x', ''])"):
                    code = f"try:\n    {wrong}\nexcept ValueError as error:\n    print(error)"
                    said = str(await interpreter.aexecute(code))
                    assert "it must be a text that is not empty" in said
        finally:
            await server.stop()

    asyncio.run(story())
