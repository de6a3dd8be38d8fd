"""`llm_query` and `llm_query_batched` of an interpreter: its code asks the language model `sub_lm`.

Made by interpreter.py and recursion.py, called as tools of the host. It never asks anything twice.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fleetctl.common.errors import UsageError
from fleetctl.guest.library.fleetctl_llm_budget import TIMEOUT, Budget, Hold
from fleetctl.interpreter import loop
from fleetctl.interpreter.asking.endpoint import ServerRefused
from fleetctl.interpreter.asking.meter import Arguments, Meter, Prices
from fleetctl.interpreter.asking.together import (
    RAISE,
    TEXT,
    answers,
    check_on_error,
    check_prompt,
    check_prompts,
    checked_width,
)

AT_ONCE = 64  # questions of one batch; as many as the slots of one large server

LanguageModel = Callable[..., Any]


class Questions:
    """Questions of one interpreter, whatever sandboxes it has had: one budget for all of them.

    model: called as `model(prompt)`, or `model(prompt, model=name)` when code names one; from
    several threads at once, or on the shared loop when it is a coroutine function.
    timeout_s: of each question; prices: by model. Raises UsageError for a model that cannot be
    called, and for prices that are none.
    """

    def __init__(
        self, model: object, *, budget: Budget, timeout_s: float, prices: Prices | None = None
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
        self._meter = Meter(self.model, self._prices, limited=budget.limits_usd)

    def within(self, budget: Budget) -> Questions:
        """The same for a query below."""
        return Questions(self.model, budget=budget, timeout_s=self.timeout_s, prices=self._prices)

    def tools(self) -> Mapping[str, Callable[..., Any]]:
        return {"llm_query": self.query, "llm_query_batched": self.query_batched}

    def query(self, prompt: str, model: str | None = None, on_error: str = RAISE) -> str:
        """The answer. Raises ValueError for an empty prompt, RuntimeError over the limit, or when
        the model fails; with on_error `text` the answer is "[ERROR] why" then.
        """
        check_prompt(prompt, "prompt")
        check_on_error(on_error)
        asked = self._hold([((prompt,), _named(model))])[0]
        try:
            return _text(self._heard(*asked))
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
        """The answers in the order of the prompts; `concurrency` (64 at most) are asked at once.

        Raises ValueError for an empty prompt, RuntimeError when the limit does not allow all of
        them (nothing is asked then), or, after all have ended, when some failed; with on_error
        `text` the answers of those are "[ERROR] why" instead.
        """
        check_prompts(prompts)
        for number, prompt in enumerate(prompts):
            check_prompt(prompt, f"prompt[{number}]")
        check_on_error(on_error)
        width = checked_width(concurrency, AT_ONCE)
        held = self._hold([((prompt,), _named(model)) for prompt in prompts])

        async def ask(one: tuple[Hold, Arguments]) -> str:
            return _text(await self._ask(*one))

        try:
            return loop.run(answers(ask, held, width=width, on_error=on_error))
        finally:
            for hold, _ in held:
                hold.end()  # also of those that never began

    def raw(self, *args: Any, **named: Any) -> Any:
        """What the model itself returns for these arguments, counted and within the time as all
        questions. Raises RuntimeError.
        """
        return self._heard(*self._hold([(args, named)])[0])

    def _heard(self, hold: Hold, arguments: Arguments) -> Any:
        try:
            return loop.run(self._ask(hold, arguments))
        finally:
            hold.end()  # also when it was interrupted before it began

    def _hold(self, asked: Sequence[Arguments]) -> list[tuple[Hold, Arguments]]:
        """All of them, or none. Raises BudgetSpent, Unpriced."""
        holds = self._budget.hold([self._meter.worst(one) for one in asked])
        return list(zip(holds, asked, strict=True))

    async def _ask(self, hold: Hold, arguments: Arguments) -> Any:
        left_s = self._budget.left_s
        hold.begin()
        try:
            async with asyncio.timeout(min(self.timeout_s, left_s)) as limit:
                said = await loop.in_thread(lambda: self._meter.ask(arguments))
                if inspect.isawaitable(said.answer):
                    said = replace(said, answer=await said.answer)
            hold.charge(*self._meter.cost(arguments, said))
        except ServerRefused as error:
            hold.charge(0, 0.0)
            raise RuntimeError(_told(error)) from error
        except TimeoutError as error:
            whose = f"{self.timeout_s:g} s" if self.timeout_s <= left_s else f"the {TIMEOUT}"
            why = f"no answer within {whose}" if limit.expired() else _told(error)
            raise RuntimeError(why) from None
        except Exception as error:
            raise RuntimeError(_told(error)) from error
        finally:
            hold.end()
        return said.answer


def _named(model: str | None) -> dict[str, str]:
    return {} if model is None else {"model": model}


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _text(answer: Any) -> str:
    """dspy's models answer with a list, of texts or of mappings with a text."""
    if isinstance(answer, list) and answer:
        answer = answer[0]
    if isinstance(answer, Mapping) and "text" in answer:
        answer = answer["text"]
    return str(answer)
