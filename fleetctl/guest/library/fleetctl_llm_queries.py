"""The parts of a recursive query that tasks and interpreters have alike: its arguments, its loop,
and the model that the loop asks.

Used by fleetctl_llm_rlm.py in tasks, and by fleetctl/interpreter/asking on the host, which import
dspy and hand it in.
"""

from __future__ import annotations

import asyncio
from typing import Any, Callable, Mapping, NamedTuple, Union

ITERATIONS_MAX = 20  # of a query's loop; as dspy's own RLM
RECURSIVE = """
Recursive queries, each by a sub-agent with a REPL of its own; for parts whose context is itself \
too large or needs steps of its own:
- `rlm_query(prompt, context="")` - its answer as a text
- `rlm_query_batched(prompts, concurrency=None, context="")` - several at once; prompts are texts \
or {"query": ..., "context": ...}; the answers in their order
"""

Prompt = Union[str, Mapping[str, str]]


class RecursiveQuery(NamedTuple):
    prompt: str
    context: str

    @property
    def plain(self) -> str:
        """Returns the query as one question."""
        return "%s\n\n%s" % self if self.context else self.prompt


def parse_query(prompt: Prompt, context: str, where: str) -> RecursiveQuery:
    """Reads a prompt of `rlm_query`. Raises ValueError."""
    text: Any = prompt
    if isinstance(prompt, Mapping):
        unknown = sorted(set(prompt) - {"query", "context"})
        if unknown:
            message = "%s has `%s`; it may have `query` and `context`"
            raise ValueError(message % (where, unknown[0]))
        text = prompt.get("query", "")
        context = prompt.get("context", context)
    if not isinstance(text, str) or not text.strip():
        raise ValueError("%s is `%r`; it must be a text that is not empty" % (where, text))
    if not isinstance(context, str):
        message = "context of %s is a %s; it must be a text"
        raise ValueError(message % (where, type(context).__name__))
    return RecursiveQuery(text, context)


def run_loop(dspy: Any, query: RecursiveQuery, model: Any, calls: int, interpreters: Any) -> str:
    """Returns the answer of dspy's RLM. calls: of the model that are left for the loop and its
    code; interpreters: makes the one that runs the code.
    """
    inputs = {"query": query.prompt}
    if query.context:
        inputs = {"context": query.context, **inputs}
    loop = dspy.RLM(
        "%s -> answer" % ", ".join(inputs),
        # With the last call it must submit its result.
        max_iters=max(1, min(ITERATIONS_MAX, calls - 1)),
        max_llm_calls=calls,
        sub_lm=model,
        interpreter_factory=interpreters,
    )
    with dspy.context(lm=model):
        return str(loop(**inputs).answer)


def counted_model(dspy: Any, name: str, ask: Callable[..., Any]) -> Any:
    """Returns a model of dspy's that asks `ask`, which counts each call; it takes the prompt or
    None, and the named arguments of the call.
    """

    class Counted(dspy.BaseLM):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(model=name)
            self.kwargs: dict[str, Any] = {}

        def __call__(self, prompt: str | None = None, **named: Any) -> Any:
            return ask(prompt, **named)

        async def acall(self, prompt: str | None = None, **named: Any) -> Any:
            return await asyncio.to_thread(ask, prompt, **named)

    return Counted()


def messages_of(prompt: str | None, named: Mapping[str, Any]) -> Any:
    """Returns the messages of a call."""
    return named.get("messages") or [{"role": "user", "content": prompt}]
