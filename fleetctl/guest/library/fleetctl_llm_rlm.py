"""Runs recursive queries of a task: dspy's RLM in the task's own sandbox, where its image has dspy.

Used by fleetctl_llm.py. A query's code runs in a process of its own beside the task; its loop and
its code ask the task's endpoints, whose limits and budgets cover all queries.
"""

import json
import math
import threading
from concurrent import futures
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from fleetctl_llm_budget import TIMEOUT, Ask, RecursionBudget
from fleetctl_llm_costs import (
    tokens_of,
    usd_of,
    worst_tokens,
)
from fleetctl_llm_line import TOKENS, USD, shorten_error
from fleetctl_llm_queries import (
    RECURSIVE,
    Prompt,
    counted_model,
    messages_of,
    parse_query,
    run_loop,
)

MAX_DEPTH = 2
AT_ONCE_MAX = 4  # queries in a batch; each is a process that computes
LATE_S = 0.5

Messages = List[Dict[str, str]]


def root(
    calls: int,
    tokens: Optional[int],
    usd: Optional[float],
    timeout_s: float,
) -> Any:
    """Returns the budget of a call of the task's. Raises RuntimeError without dspy in the image,
    ValueError for an invalid limit.
    """
    _import_dspy()
    if not 0 < timeout_s < math.inf:
        raise ValueError("%s is `%s`; it must be seconds above 0" % (TIMEOUT, timeout_s))
    return RecursionBudget(
        calls=calls,
        tokens=tokens,
        usd=usd,
        sandboxes=0,
        depth_max=MAX_DEPTH,
        timeout_s=timeout_s,
    )


class Model:
    """The task's endpoint. reply: (messages, callback before a repetition) -> the text and the
    whole reply. price: USD of a million tokens; None where it is unknown.
    """

    def __init__(
        self,
        reply: Callable[[Messages, Any], Tuple[str, Dict[str, Any]]],
        parameters: Mapping[str, Any],
        price: Optional[Mapping[str, Any]],
    ) -> None:
        self._reply = reply
        self._parameters = parameters
        self._price = price

    def worst(self, messages: Messages) -> Any:
        whole = json.dumps([messages, self._parameters], ensure_ascii=False)
        length = len(whole.encode("utf-8", "replace"))  # half a character may be in it
        tokens = worst_tokens(length, self._parameters)
        why = "its Endpoint needs `prices` of this model"
        return Ask(sum(tokens), usd_of(self._price, tokens), why)

    def ask(self, messages: Messages, hold: Any) -> str:
        """Returns the answer, and charges its cost; a lost answer is charged at its worst."""
        hold.begin()
        try:
            text, reply = self._reply(messages, hold.again)
            told = reply["fleetctl"]
            tokens = tokens_of(told[TOKENS], reply.get("usage"))
            if tokens is None:  # no token is shorter than a byte
                tokens = len(json.dumps(messages).encode()), len(text.encode("utf-8", "replace"))
            usd = usd_of(self._price, tokens) if told[USD] is None else float(told[USD])
            hold.charge(sum(tokens), usd)
            return text
        except Exception as error:  # charged for, then raised as it is
            if getattr(error, "unasked", False):
                hold.charge(0, 0.0)
            raise
        finally:
            hold.end()


def answer_prompts(
    model: Any,
    prompts: Sequence[Prompt],
    context: str,
    concurrency: Optional[int],
    budget: Any,
) -> List[str]:
    """Returns answers in the order of the prompts. Raises ValueError for an empty prompt,
    BudgetSpent (before any call), or RuntimeError: after all have ended when some failed, or at
    their deadline.
    """
    asked = [
        parse_query(prompt, context, "prompt[%d]" % place) for place, prompt in enumerate(prompts)
    ]
    if concurrency is not None and concurrency < 1:
        raise ValueError("concurrency is `%s`; it must be at least 1" % concurrency)
    if not asked:
        return []

    if budget.deepest:
        plain = [[{"role": "user", "content": one.plain}] for one in asked]
        holds = budget.hold([model.worst(messages) for messages in plain])
        works = [_bind_arguments(model.ask, *pair) for pair in zip(plain, holds)]
        ends = [hold.end for hold in holds]
        left_s = budget.left_s
    else:
        shares = budget.shares(len(asked), sandbox_each=False)
        pairs = zip(asked, shares)
        works = [_bind_arguments(_run_query, model, one, share) for one, share in pairs]
        ends = [share.close for share in shares]
        left_s = shares[0].left_s

    width = min(concurrency or AT_ONCE_MAX, AT_ONCE_MAX)
    outcomes = _run_all(works, ends, width, left_s)
    _raise_failures(outcomes)
    return [str(outcome) for outcome in outcomes]


def _raise_failures(outcomes: Sequence[Any]) -> None:
    """Raises RuntimeError with every failure among the outcomes, which are in the order of the
    prompts.
    """
    failed = [(place, one) for place, one in enumerate(outcomes) if isinstance(one, Exception)]
    if not failed:
        return
    first = failed[0][1]
    if len(outcomes) == 1:
        raise RuntimeError("%s: %s" % (type(first).__name__, first)) from first
    whys = "; ".join("prompt[%d]: %s" % (place, shorten_error(error)) for place, error in failed)
    raise RuntimeError("%d/%d failed: %s" % (len(failed), len(outcomes), whys)) from first


def _bind_arguments(function: Callable[..., str], *args: Any) -> Callable[[], str]:
    return lambda: function(*args)


def _run_all(
    works: Sequence[Callable[[], str]],
    ends: Sequence[Callable[[], None]],
    width: int,
    left_s: float,
) -> List[Union[str, BaseException]]:
    """Returns answers and errors. ends: called after each, and all when none may continue. Raises
    RuntimeError at the deadline: running queries then make no more calls, and their code is killed.
    """
    pool = futures.ThreadPoolExecutor(min(width, len(works)))
    try:
        begun = [pool.submit(work) for work in works]
        for future, end in zip(begun, ends):
            future.add_done_callback(lambda _, end=end: end())  # type: ignore[misc]
        _, late = futures.wait(begun, None if math.isinf(left_s) else left_s)
        if late:
            raise RuntimeError("%s: no answer within the seconds that it gives" % TIMEOUT)
        return [future.exception() or future.result() for future in begun]
    finally:
        for end in ends:
            end()
        pool.shutdown(wait=False)


def _run_query(model: Any, query: Any, budget: Any) -> str:
    dspy = _import_dspy()

    def ask(prompt: Optional[str] = None, **named: Any) -> List[str]:
        messages = messages_of(prompt, named)
        return [model.ask(messages, budget.hold([model.worst(messages)])[0])]

    counted = counted_model(dspy, "fleetctl", ask)
    interpreters = _interpreter_factory(dspy, model, budget)
    answer: str = run_loop(dspy, query, counted, budget.calls_left, interpreters)
    return answer


def _interpreter_factory(
    dspy: Any,
    model: Any,
    budget: Any,
) -> Any:
    """Makes processes for code, which has the functions of this file, too. Not by RLM's own
    `tools`: those take keywords alone there, and models write `rlm_query("...")`.
    """

    def rlm_query(prompt: Prompt, context: str = "") -> str:
        return answer_prompts(
            model,
            [prompt],
            context,
            None,
            budget,
        )[0]

    def rlm_query_batched(
        prompts: List[Prompt],
        concurrency: Optional[int] = None,
        context: str = "",
    ) -> List[str]:
        return answer_prompts(
            model,
            prompts,
            context,
            concurrency,
            budget,
        )

    class Timed(dspy.LocalInterpreter):  # type: ignore[misc]
        def execute(self, *args: Any, **named: Any) -> Any:
            # Its process is killed soon after the deadline, which is reported by then.
            self.execution_timeout = budget.left_s + LATE_S
            return super().execute(*args, **named)

    def make() -> Any:
        return Timed(tools={"rlm_query": rlm_query, "rlm_query_batched": rlm_query_batched})

    told = "" if budget.deepest else RECURSIVE
    make.execution_instructions = (  # type: ignore[attr-defined]
        dspy.LocalInterpreter.execution_instructions + told
    )
    return make


_importing = threading.Lock()


def _import_dspy() -> Any:
    """Imports dspy. Raises RuntimeError with advice on installing it."""
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
