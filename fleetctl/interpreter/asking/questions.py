"""`llm_query` and `llm_query_batched` of an interpreter: its code asks the language model `sub_lm`.

Made by interpreter.py and recursion.py, called as tools of the host. It never asks anything twice.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fleetctl.common.errors import UsageError
from fleetctl.guest.library.fleetctl_llm_budget import Budget
from fleetctl.interpreter import loop
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
    timeout_s: of each question. Raises UsageError for a model that cannot be called.
    """

    def __init__(self, model: object, *, budget: Budget, timeout_s: float) -> None:
        if not callable(model):
            raise UsageError(
                f"sub_lm is a {type(model).__name__}; it must be a function that takes a prompt"
                " and returns a text"
            )
        self.model: LanguageModel = model
        self.timeout_s = timeout_s
        self._budget = budget

    def within(self, budget: Budget) -> Questions:
        """The same for a query below."""
        return Questions(self.model, budget=budget, timeout_s=self.timeout_s)

    def tools(self) -> Mapping[str, Callable[..., Any]]:
        return {"llm_query": self.query, "llm_query_batched": self.query_batched}

    def query(self, prompt: str, model: str | None = None, on_error: str = RAISE) -> str:
        """The answer. Raises ValueError for an empty prompt, RuntimeError over the limit, or when
        the model fails; with on_error `text` the answer is "[ERROR] why" then.
        """
        check_prompt(prompt, "prompt")
        check_on_error(on_error)
        self._budget.take_calls(1)
        try:
            return _text(loop.run(self._ask((prompt,), _named(model))))
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
        self._budget.take_calls(len(prompts))

        async def ask(prompt: str) -> str:
            return _text(await self._ask((prompt,), _named(model)))

        return loop.run(answers(ask, prompts, width=width, on_error=on_error))

    def raw(self, *args: Any, **named: Any) -> Any:
        """What the model itself returns for these arguments, counted and within the time as all
        questions. Raises RuntimeError.
        """
        self._budget.take_calls(1)
        return loop.run(self._ask(args, named))

    async def _ask(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        try:
            async with asyncio.timeout(self.timeout_s) as limit:
                answer = await loop.in_thread(lambda: self._begin(args, named))
                if inspect.isawaitable(answer):
                    answer = await answer
        except TimeoutError as error:
            why = f"no answer within {self.timeout_s:g} s" if limit.expired() else _told(error)
            raise RuntimeError(why) from None
        except Exception as error:
            raise RuntimeError(_told(error)) from error
        return answer

    def _begin(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        return self.model(*args, **named)


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
