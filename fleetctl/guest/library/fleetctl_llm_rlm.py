"""Recursive queries of a task: dspy's RLM in the task's own sandbox, where its image has dspy.

Used by fleetctl_llm.py. A query's code runs in a process of its own beside the task; its loop and
its code ask the task's endpoints, whose limits and budgets hold for all of them.
"""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from fleetctl_llm_budget import Budget  # type: ignore[import-not-found]
from fleetctl_llm_line import shortened  # type: ignore[import-not-found]

MAX_LLM_CALLS = 50  # of one call of the task's, with all that is below it
MAX_DEPTH = 2
AT_ONCE_MAX = 4  # queries of one batch; each is a process that computes
ITERATIONS_MAX = 20  # of one query's loop; as dspy's own RLM
RECURSIVE = """
Recursive queries, each by a sub-agent with a REPL of its own; for parts whose context is itself \
too large or needs steps of its own:
- `rlm_query(prompt, context="")` - its answer as a text
- `rlm_query_batched(prompts, concurrency=None, context="")` - several at once; prompts are texts \
or {"query": ..., "context": ...}; the answers in their order
"""

Chat = Callable[[List[Dict[str, str]]], str]
Prompt = Union[str, Mapping[str, str]]


def root(max_llm_calls: int) -> Any:
    """The budget of one call of the task's. Raises RuntimeError without dspy in the image."""
    _dspy()
    return Budget(calls=max_llm_calls, sandboxes=0, depth_max=MAX_DEPTH)


def answers(
    chat: Chat, prompts: Sequence[Prompt], context: str, concurrency: Optional[int], budget: Any
) -> List[str]:
    """In the order of the prompts. Raises ValueError for an empty one, BudgetSpent (nothing is
    asked then), or, after all have ended, RuntimeError when some failed.
    """
    asked = [_asked(prompt, context, "prompt[%d]" % place) for place, prompt in enumerate(prompts)]
    if concurrency is not None and concurrency < 1:
        raise ValueError("concurrency is `%s`; it must be at least 1" % concurrency)
    if not asked:
        return []
    if budget.deepest:
        budget.take_calls(len(asked))
        shares = [budget] * len(asked)
    else:
        shares = budget.shares(len(asked), sandbox_each=False)

    def one(place: int) -> Union[str, Exception]:
        try:
            return _answer(chat, *asked[place], shares[place], plain=budget.deepest)
        except Exception as error:
            return error
        finally:
            if not budget.deepest:
                shares[place].close()

    with ThreadPoolExecutor(min(concurrency or AT_ONCE_MAX, AT_ONCE_MAX, len(asked))) as pool:
        outcomes = list(pool.map(one, range(len(asked))))
    failed = [(place, one) for place, one in enumerate(outcomes) if isinstance(one, Exception)]
    if failed and len(asked) == 1:
        raise RuntimeError("%s: %s" % (type(failed[0][1]).__name__, failed[0][1])) from failed[0][1]
    if failed:
        whys = "; ".join("prompt[%d]: %s" % (place, shortened(error)) for place, error in failed)
        raise RuntimeError("%d/%d failed: %s" % (len(failed), len(asked), whys)) from failed[0][1]
    return [str(outcome) for outcome in outcomes]


def _answer(chat: Chat, query: str, context: str, budget: Any, plain: bool) -> str:
    if plain:
        return chat([{"role": "user", "content": _plain(query, context)}])
    dspy = _dspy()
    inputs = {"context": context, "query": query} if context else {"query": query}
    model = _counted(dspy, chat, budget)

    loop = dspy.RLM(
        "%s -> answer" % ", ".join(inputs),
        # With the last call it must say what it came to.
        max_iters=max(1, min(ITERATIONS_MAX, budget.calls_left - 1)),
        max_llm_calls=budget.calls_left,
        sub_lm=model,
        interpreter_factory=_interpreters(dspy, chat, budget),
    )
    with dspy.context(lm=model):
        return str(loop(**inputs).answer)


def _interpreters(dspy: Any, chat: Chat, budget: Any) -> Any:
    """Makes processes for code, which has the functions of this file, too. Not by RLM's own
    `tools`: those take keywords alone there, and models write `rlm_query("...")`.
    """

    def rlm_query(prompt: Prompt, context: str = "") -> str:
        return answers(chat, [prompt], context, None, budget)[0]

    def rlm_query_batched(
        prompts: List[Prompt], concurrency: Optional[int] = None, context: str = ""
    ) -> List[str]:
        return answers(chat, prompts, context, concurrency, budget)

    def make() -> Any:
        tools = {"rlm_query": rlm_query, "rlm_query_batched": rlm_query_batched}
        return dspy.LocalInterpreter(tools=tools)

    told = "" if budget.deepest else RECURSIVE
    make.execution_instructions = (  # type: ignore[attr-defined]
        dspy.LocalInterpreter.execution_instructions + told
    )
    return make


def _counted(dspy: Any, chat: Chat, budget: Any) -> Any:
    """The task's endpoint as a model of dspy's; each call is counted."""

    class Counted(dspy.BaseLM):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(model="fleetctl")
            self.kwargs: Dict[str, Any] = {}

        def __call__(self, prompt: Optional[str] = None, **named: Any) -> List[str]:
            budget.take_calls(1)
            return [chat(named.get("messages") or [{"role": "user", "content": prompt}])]

        async def acall(self, prompt: Optional[str] = None, **named: Any) -> List[str]:
            return await asyncio.to_thread(self, prompt, **named)

    return Counted()


def _asked(prompt: Prompt, context: str, where: str) -> Tuple[str, str]:
    """Raises ValueError."""
    if isinstance(prompt, Mapping):
        query, context = prompt.get("query", ""), prompt.get("context", context)
    else:
        query = prompt
    if not isinstance(query, str) or not query.strip():
        raise ValueError("%s is `%r`; it must be a text that is not empty" % (where, query))
    return query, context


def _plain(query: str, context: str) -> str:
    return "%s\n\n%s" % (query, context) if context else query


_importing = threading.Lock()


def _dspy() -> Any:
    """Raises RuntimeError with the way to it."""
    with _importing:
        try:
            import dspy
        except ImportError:
            dspy = None
    if dspy is None or not hasattr(dspy, "LocalInterpreter"):
        raise RuntimeError(
            "rlm_query is dspy's RLM, and the task's image has no dspy 3.4 or newer:"
            " `image: {pip: ['dspy>=3.4']}`; llm_query needs nothing"
        )
    return dspy
