"""dspy's own RLM on interpreters of fleetctl, at the provider $FLEETCTL_PROVIDER: writes one line
of JSON. argv: a file with the seed's block.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import dspy
from dspy.utils import DummyLM

import fleetctl.dspy
from fleetctl import DaytonaInterpreter, Interpreter, as_dict

PROVIDER = os.environ["FLEETCTL_PROVIDER"]
CODE = "[[ ## reasoning ## ]]\nr\n\n[[ ## code ## ]]\n{}\n\n[[ ## completed ## ]]"
STEPS = [
    "```python\nprint(len(context)); 1 / 0\n```",
    "print(llm_query('one'), llm_query_batched(['two', 'three']))",
    "print(shout('a'), shout(text='b'))",
    "SUBMIT(answer='no number')",
    "import dspy\nSUBMIT(answer=len(context) + len(dspy.Predict('q -> a')(q='x').a))",
]
NESTED = "SUBMIT(answer=rlm_query(context, context='rlm_query(\"deepest\")'))"


def shout(text: str) -> str:
    return text.upper()


class Model:
    """A plain function from a prompt to a text. code: what it writes where it is asked for code;
    together: as many questions are only answered at once.
    """

    def __init__(self, code: str, together: int = 1) -> None:
        self.documented: list[bool] = []
        self._code = code
        self._together = threading.Barrier(together)

    def __call__(self, prompt: str) -> str:
        if "[[ ## code ## ]]" in prompt:
            self.documented.append("rlm_query_batched(" in prompt)
            return CODE.format(self._code)
        self._together.wait(timeout=60)
        return prompt.split(":")[0].upper()


def driven(kind: Any) -> Any:
    """dspy drives one of ours by its factory: variables, errors, questions, types, sub-agents."""
    words = [{"reasoning": "r", "code": code} for code in STEPS]
    texts = [{"answer": text} for text in ("1", "2", "3")]
    model = DummyLM([*words[:2], *texts, *words[2:], {"a": "four"}])
    made = fleetctl.dspy.factory(kind, provider=PROVIDER)
    rlm = dspy.RLM("context, query -> answer: int", interpreter_factory=made, tools=[shout])
    with dspy.context(lm=model):
        done = rlm(context="x" * 3000, query="how long?")
    return [done.answer, [step["output"] for step in done.trajectory]]


def seed(block: str) -> Any:
    model = Model("SUBMIT(answer=llm_query(query))", together=3)
    with DaytonaInterpreter(sub_lm=model) as interpreter:
        return [as_dict(interpreter.execute(block)), model.documented]


def nested(children: str) -> Any:
    """Two levels below the root, each with a loop of its own; a third is a plain question."""
    model = Model("exec(query)")  # a query says what is done
    with Interpreter(sub_lm=model, children=children) as interpreter:
        result = interpreter.execute("SUBMIT(a=rlm_query(one, context=one))", {"one": NESTED})
        return [as_dict(result), model.documented]


def own_model() -> Any:
    """A model of dspy's as sub_lm: its calls are counted, and those of sub-agents too."""
    code = "import dspy; SUBMIT(answer=dspy.Predict('q -> a')(q='x').a)"
    model = DummyLM([{"reasoning": "r", "code": code}, {"a": "by a sub-agent"}, {"answer": "last"}])
    with Interpreter(sub_lm=model, max_llm_calls=3) as interpreter:
        first = interpreter.execute("print(rlm_query('q'))")
        last = interpreter.execute("print(llm_query('q')); llm_query('one more')")
    return [first, last]


class Counting(dspy.BaseLM):  # type: ignore[misc]
    """A model that says what it used, as servers do."""

    def forward(self, prompt: str | None = None, messages: Any = None, **_: Any) -> Any:
        from litellm import Choices, Message, ModelResponse, Usage

        asked = prompt or messages[-1]["content"]
        code = "[[ ## code ## ]]" in asked
        text = CODE.format("SUBMIT(answer=llm_query(query))") if code else asked.upper()
        usage = Usage(prompt_tokens=30, completion_tokens=12, total_tokens=42)
        return ModelResponse(
            model="counting", usage=usage, choices=[Choices(message=Message(content=text))]
        )


def spent() -> Any:
    """What a loop of dspy's and its code used, by dspy's own count."""
    price = {"inputPerMillion": 1.0, "outputPerMillion": 10.0}
    options = {"max_llm_tokens": 50_000, "max_llm_usd": 1.0, "llm_prices": {"counting": price}}
    with Interpreter(sub_lm=Counting(model="counting"), **options) as interpreter:
        answer = interpreter.execute("print(rlm_query('q'))")
        return [answer, interpreter.llm_usage]


print(
    json.dumps(
        {
            "driven": [driven(Interpreter), driven(DaytonaInterpreter)],
            "seed": seed(Path(sys.argv[1]).read_text(encoding="utf-8")),
            "nested": [nested("context"), nested("sandbox")],
            "own_model": own_model(),
            "spent": spent(),
        }
    )
)
