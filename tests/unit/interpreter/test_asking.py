"""Code in a sandbox asks the language model of its interpreter."""

from __future__ import annotations

import asyncio
import threading

import pytest

from fleetctl import DaytonaInterpreter, FinalOutput, Interpreter, as_dict

BATCH = "SUBMIT(summaries=llm_query_batched([f'p{n}' for n in range(%d)]))"


@pytest.mark.parametrize("kind", [Interpreter, DaytonaInterpreter])
def test_a_batch_is_asked_at_once_and_answered_in_order(
    kind: type[Interpreter] | type[DaytonaInterpreter],
) -> None:
    together = threading.Barrier(48)  # nobody is answered before all have asked

    def model(prompt: str) -> str:
        together.wait(timeout=30)
        return prompt.upper()

    with kind(provider="local", sub_lm=model) as interpreter:
        result = interpreter.execute(BATCH % 48)
    assert isinstance(result, FinalOutput)
    assert as_dict(result) == {"summaries": [f"P{n}" for n in range(48)]}


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
