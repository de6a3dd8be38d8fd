"""Asks many things at once and keeps their order. Used by questions.py and recursion.py."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from fleetctl.interpreter.interpreter_errors import InvalidArgument

PROBLEM_CHARACTERS_MAX = 300  # of each failed prompt, in the error of its batch
RAISE, TEXT = "raise", "text"  # modes for a batch with failures

T = TypeVar("T")


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
    """Raises InvalidArgument."""
    if on_error not in (RAISE, TEXT):
        raise InvalidArgument(f"on_error is `{on_error}`; it must be `{RAISE}` or `{TEXT}`")


def check_prompts(prompts: object) -> None:
    """Raises InvalidArgument for a text, which would be sent letter by letter."""
    if isinstance(prompts, str):
        raise InvalidArgument("prompts is a text; it must be a list of texts")


def check_prompt(prompt: object, where: str) -> None:
    """Raises InvalidArgument."""
    if not isinstance(prompt, str) or not prompt.strip():
        raise InvalidArgument(f"{where} is `{prompt!r}`; it must be a text that is not empty")


def checked_width(concurrency: int | None, most: int) -> int:
    """Returns how many run at once. Raises InvalidArgument."""
    if concurrency is not None and concurrency < 1:
        raise InvalidArgument(f"concurrency is `{concurrency}`; it must be at least 1")
    if concurrency is None:
        return most
    return min(concurrency, most)
