"""`llm_query` and `llm_query_batched` of an interpreter: its code asks the language model `sub_lm`.

Made by interpreter.py, called as tools of the host. It never asks anything twice.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fleetctl.common.errors import UsageError
from fleetctl.interpreter import loop

AT_ONCE = 64  # questions of one batch; as many as the slots of one large server
PROBLEM_CHARACTERS_MAX = 300  # of each failed question, in the error of its batch

LanguageModel = Callable[..., Any]


class Questions:
    """Questions of one interpreter, whatever sandboxes it has had: one counter for all of them.

    model: called as `model(prompt)`, or `model(prompt, model=name)` when code names one; from
    several threads at once, or on the shared loop when it is a coroutine function.
    calls_max: answers and failures alike. timeout_s: of each question.
    Raises UsageError for a model that cannot be called.
    """

    def __init__(self, model: object, *, calls_max: int, timeout_s: float) -> None:
        if not callable(model):
            raise UsageError(
                f"sub_lm is a {type(model).__name__}; it must be a function that takes a prompt"
                " and returns a text"
            )
        self._model: LanguageModel = model
        self._calls_max = calls_max
        self._timeout_s = timeout_s
        self._used = 0
        self._counting = threading.Lock()

    def tools(self) -> Mapping[str, Callable[..., Any]]:
        return {"llm_query": self.query, "llm_query_batched": self.query_batched}

    def query(self, prompt: str, model: str | None = None) -> str:
        """The answer. Raises ValueError for an empty prompt, RuntimeError over the limit or when
        the model fails.
        """
        _check_prompt(prompt, "prompt")
        self._count(1)
        return loop.run(self._ask(prompt, model))

    def query_batched(
        self, prompts: Sequence[str], model: str | None = None, concurrency: int | None = None
    ) -> list[str]:
        """The answers in the order of the prompts; `concurrency` (64 at most) are asked at once.

        Raises ValueError for an empty prompt, RuntimeError when the limit does not allow all of
        them (nothing is asked then), or, after all have ended, when some failed.
        """
        if isinstance(prompts, str):
            raise ValueError("prompts is a text; it must be a list of texts")
        for number, prompt in enumerate(prompts):
            _check_prompt(prompt, f"prompt[{number}]")
        width = AT_ONCE if concurrency is None else concurrency
        if width < 1:
            raise ValueError(f"concurrency is `{concurrency}`; it must be at least 1")
        self._count(len(prompts))
        return loop.run(self._ask_all(prompts, model, min(width, AT_ONCE)))

    def _count(self, asked: int) -> None:
        """All of them or none."""
        with self._counting:
            if self._used + asked > self._calls_max:
                raise RuntimeError(
                    f"{self._used} calls of the language model are used and {asked} more are"
                    f" asked for; max_llm_calls allows {self._calls_max}"
                )
            self._used += asked

    async def _ask_all(self, prompts: Sequence[str], model: str | None, width: int) -> list[str]:
        slots = asyncio.Semaphore(width)

        async def ask(prompt: str) -> str:
            async with slots:
                return await self._ask(prompt, model)

        outcomes = await asyncio.gather(*map(ask, prompts), return_exceptions=True)
        answers = [one for one in outcomes if isinstance(one, str)]
        failed = [
            f"prompt[{number}]: {str(one)[:PROBLEM_CHARACTERS_MAX]}"
            for number, one in enumerate(outcomes)
            if isinstance(one, BaseException)
        ]
        if failed:
            raise RuntimeError(f"{len(failed)}/{len(prompts)} failed: {'; '.join(failed)}")
        return answers

    async def _ask(self, prompt: str, model: str | None) -> str:
        named = {} if model is None else {"model": model}
        try:
            async with asyncio.timeout(self._timeout_s) as limit:
                answer = await loop.in_thread(lambda: self._begin(prompt, named))
                if inspect.isawaitable(answer):
                    answer = await answer
        except TimeoutError as error:
            why = f"no answer within {self._timeout_s:g} s" if limit.expired() else _told(error)
            raise RuntimeError(why) from None
        except Exception as error:
            raise RuntimeError(_told(error)) from error
        return _text(answer)

    def _begin(self, prompt: str, named: Mapping[str, str]) -> Any:
        return self._model(prompt, **named)


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _text(answer: Any) -> str:
    """dspy's models answer with a list, of texts or of mappings with a text."""
    if isinstance(answer, list) and answer:
        answer = answer[0]
    if isinstance(answer, Mapping) and "text" in answer:
        answer = answer["text"]
    return str(answer)


def _check_prompt(prompt: object, where: str) -> None:
    if not isinstance(prompt, str) or not prompt.strip():
        raise ValueError(f"{where} is `{prompt!r}`; it must be a text that is not empty")
