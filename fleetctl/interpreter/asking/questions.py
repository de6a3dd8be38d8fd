"""Implements `llm_query` and `llm_query_batched` of an interpreter: its code asks the language
model, many things at once, in their order.

It never repeats a question.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from fleetctl.common.errors import UsageError
from fleetctl.guest.library.fleetctl_llm_budget import TIMEOUT, Hold, RecursionBudget
from fleetctl.interpreter import loop
from fleetctl.interpreter.asking.model_server import Arguments, CallMeter, Prices, ServerRefused
from fleetctl.interpreter.result import InvalidArgument

PROBLEM_CHARACTERS_MAX = 300  # of each failed prompt, in the error of its batch
RAISE, TEXT = "raise", "text"  # modes for a batch with failures

T = TypeVar("T")

AT_ONCE = 64  # questions per batch; as many as the slots of a large server

LanguageModel = Callable[..., Any]


async def ask_all(
    ask: Callable[[T], Awaitable[str]],
    items: Sequence[T],
    *,
    width: int,
    on_error: str,
) -> list[str]:
    """Returns the result of `ask` for each item, `width` items at once, in the order of the items.

    Raises RuntimeError, after all have ended, when some failed; with on_error `text` a failed one's
    is "[ERROR] why" instead.
    """
    slots = asyncio.Semaphore(width)

    async def one(item: T) -> str:
        async with slots:
            return await ask(item)

    outcomes = await asyncio.gather(*map(one, items), return_exceptions=True)
    failed = {
        number: str(outcome)[:PROBLEM_CHARACTERS_MAX]
        for number, outcome in enumerate(outcomes)
        if isinstance(outcome, BaseException)
    }
    if failed and on_error == RAISE:
        whys = "; ".join(f"prompt[{number}]: {why}" for number, why in failed.items())
        raise RuntimeError(f"{len(failed)}/{len(items)} failed: {whys}")
    return [
        f"[ERROR] {failed[number]}" if number in failed else str(outcome)
        for number, outcome in enumerate(outcomes)
    ]


def check_on_error(on_error: str) -> None:
    """Checks that on_error is one of its two values; raises InvalidArgument."""
    if on_error not in (RAISE, TEXT):
        raise InvalidArgument(f"on_error is `{on_error}`; it must be `{RAISE}` or `{TEXT}`")


def check_prompts(prompts: object) -> None:
    """Raises InvalidArgument for a text, which would be sent letter by letter."""
    if isinstance(prompts, str):
        raise InvalidArgument("prompts is a text; it must be a list of texts")


def check_prompt(prompt: object, where: str) -> None:
    """Checks that a prompt is a text with content; raises InvalidArgument. where: its name, for the
    message.
    """
    if not isinstance(prompt, str) or not prompt.strip():
        raise InvalidArgument(f"{where} is `{prompt!r}`; it must be a text that is not empty")


def checked_width(concurrency: int | None, most: int) -> int:
    """Returns how many run at once. Raises InvalidArgument."""
    if concurrency is not None and concurrency < 1:
        raise InvalidArgument(f"concurrency is `{concurrency}`; it must be at least 1")
    if concurrency is None:
        return most
    return min(concurrency, most)


class Questions:
    """Questions of an interpreter, across all its sandboxes: one budget for all.

    model: called as `model(prompt)`, or `model(prompt, model=name)` when code names one; from
    several threads at once, or on the shared loop when it is a coroutine function. timeout_s: of
    each question; prices: by model. Raises UsageError for a model that cannot be called, and for
    invalid prices.
    """

    def __init__(
        self,
        model: object,
        *,
        budget: RecursionBudget,
        timeout_s: float,
        prices: Prices | None = None,
    ) -> None:
        if not callable(model):
            raise UsageError(
                f"sub_lm is a {type(model).__name__}; it must be a function that takes a prompt"
                " and returns a text"
            )
        self.model: LanguageModel = model
        self.timeout_s = timeout_s
        self._budget = budget
        self._prices = prices or {}
        self._meter = CallMeter(self.model, self._prices, limited=budget.limits_usd)

    def within(self, budget: RecursionBudget) -> Questions:
        """Returns the same questions for a query below."""
        return Questions(
            self.model,
            budget=budget,
            timeout_s=self.timeout_s,
            prices=self._prices,
        )

    def tools(self) -> Mapping[str, Callable[..., Any]]:
        return {"llm_query": self.query, "llm_query_batched": self.query_batched}

    def query(
        self,
        prompt: str,
        model: str | None = None,
        on_error: str = RAISE,
    ) -> str:
        """Returns the reply. Raises ValueError for an empty prompt, RuntimeError over the limit, or
        when the model fails; with on_error `text` the reply is "[ERROR] why" then.
        """
        check_prompt(prompt, "prompt")
        check_on_error(on_error)
        asked = self._hold([((prompt,), _model_argument(model))])[0]
        try:
            return _read_text(self._await_answer(*asked))
        except RuntimeError as error:
            if on_error == TEXT:
                return f"[ERROR] {error}"
            raise

    def query_batched(
        self,
        prompts: Sequence[str],
        model: str | None = None,
        concurrency: int | None = None,
        on_error: str = RAISE,
    ) -> list[str]:
        """Returns the replies in the order of the prompts; at most `concurrency` (64 at most) run
        at once.

        Raises ValueError for an empty prompt, RuntimeError when the limit does not allow all of
        them (then no prompt is sent), or, after all have ended, when some failed; with on_error
        `text` a failed one's reply is "[ERROR] why" instead.
        """
        check_prompts(prompts)
        for number, prompt in enumerate(prompts):
            check_prompt(prompt, f"prompt[{number}]")
        check_on_error(on_error)
        width = checked_width(concurrency, AT_ONCE)
        held = self._hold([((prompt,), _model_argument(model)) for prompt in prompts])

        async def ask(one: tuple[Hold, Arguments]) -> str:
            return _read_text(await self._ask(*one))

        try:
            return loop.run(ask_all(ask, held, width=width, on_error=on_error))
        finally:
            for hold, _ in held:
                hold.end()  # also of questions that never began

    def raw(self, *args: Any, **named: Any) -> Any:
        """Returns the model's own result for these arguments, counted and limited in time as all
        questions. Raises RuntimeError.
        """
        return self._await_answer(*self._hold([(args, named)])[0])

    def _await_answer(self, hold: Hold, arguments: Arguments) -> Any:
        try:
            return loop.run(self._ask(hold, arguments))
        finally:
            hold.end()  # also when it was interrupted before it began

    def _hold(self, asked: Sequence[Arguments]) -> list[tuple[Hold, Arguments]]:
        """Reserves all calls, or none. Raises BudgetSpent, Unpriced."""
        holds = self._budget.hold([self._meter.worst(one) for one in asked])
        return list(zip(holds, asked, strict=True))

    async def _ask(self, hold: Hold, arguments: Arguments) -> Any:
        left_s = self._budget.left_s
        hold.begin()
        try:
            async with asyncio.timeout(min(self.timeout_s, left_s)) as limit:
                said = await loop.call_in_thread(lambda: self._meter.ask(arguments))
                if inspect.isawaitable(said.answer):
                    said = replace(said, answer=await said.answer)
            hold.charge(*self._meter.cost(arguments, said))
        except ServerRefused as error:
            hold.charge(0, 0.0)
            raise RuntimeError(_describe_error(error)) from error
        except TimeoutError as error:
            whose = f"{self.timeout_s:g} s" if self.timeout_s <= left_s else f"the {TIMEOUT}"
            why = f"no answer within {whose}" if limit.expired() else _describe_error(error)
            raise RuntimeError(why) from None
        except Exception as error:  # of any model library; the caller's code gets one class
            raise RuntimeError(_describe_error(error)) from error
        finally:
            hold.end()
        return said.answer


def _model_argument(model: str | None) -> dict[str, str]:
    if model is None:
        return {}
    return {"model": model}


def _describe_error(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _read_text(answer: Any) -> str:
    """Returns a reply's text: dspy's models reply with a list, of texts or of mappings with a
    text.
    """
    if isinstance(answer, list) and answer:
        answer = answer[0]
    if isinstance(answer, Mapping) and "text" in answer:
        answer = answer["text"]
    return str(answer)
