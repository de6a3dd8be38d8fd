"""`rlm_query` and `rlm_query_batched` of an interpreter: its code hands parts of its work to
queries that think for themselves, each with an interpreter of its own below this one.

Made by interpreter.py, called as tools of the host. The loop of such a query is dspy's; see
rlm.py.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from fleetctl.common.errors import FleetctlError
from fleetctl.guest.library.fleetctl_llm_budget import TIMEOUT, Budget
from fleetctl.interpreter import loop
from fleetctl.interpreter.asking import rlm
from fleetctl.interpreter.asking.questions import Questions
from fleetctl.interpreter.asking.together import (
    RAISE,
    TEXT,
    answers,
    check_on_error,
    check_prompt,
    check_prompts,
    checked_width,
)
from fleetctl.interpreter.options import AtDepth, Children, Options

log = logging.getLogger(__name__)
T = TypeVar("T")


class Child(rlm.Runner, Protocol):
    """An interpreter below this one."""

    async def retire(self) -> None: ...


# (the place that was asked for, what the child is to be) -> the child, not started
Bear = Callable[[Children, "Recursion"], Child]


@dataclass(frozen=True, slots=True)
class Query:
    prompt: str
    context: str

    @property
    def plain(self) -> str:
        """As one question."""
        return f"{self.prompt}\n\n{self.context}" if self.context else self.prompt


class Recursion:
    """The queries below one interpreter. bear: makes the interpreter of one; set by its owner."""

    bear: Bear

    def __init__(self, options: Options, questions: Questions, budget: Budget) -> None:
        self._options = options
        self._questions = questions
        self._budget = budget
        self._under_way: set[asyncio.Task[Any]] = set()  # touched on the shared loop alone

    def tools(self) -> Mapping[str, Callable[..., Any]]:
        return {
            **self._questions.tools(),
            "rlm_query": self.query,
            "rlm_query_batched": self.query_batched,
            "sub_rlm": self.sub_rlm,
            "sub_rlm_batched": self.sub_rlm_batched,
        }

    def query(
        self, prompt: str | Mapping[str, str], context: str = "", on_error: str = RAISE
    ) -> str:
        """The answer of a recursive query, or, where none may be below, of the model itself.

        Raises ValueError for an empty prompt; RuntimeError over a limit, without dspy, or when the
        query failed; with on_error `text` the answer is "[ERROR] why" instead of the last.
        """
        check_on_error(on_error)
        return self._one(_query(prompt, context, "prompt"), self._options.children, on_error)

    def query_batched(
        self,
        prompts: Sequence[str | Mapping[str, str]],
        concurrency: int | None = None,
        context: str = "",
        on_error: str = RAISE,
    ) -> list[str]:
        """The answers in the order of the prompts, which are texts or {"query", "context"};
        `concurrency` at once, and batch_concurrency of the interpreter at most.

        Raises as `query`; when some failed, after all have ended.
        """
        check_on_error(on_error)
        return self._many(prompts, self._options.children, concurrency, context, on_error)

    def sub_rlm(self, prompt: str | Mapping[str, str], context: str = "") -> str:
        """`rlm_query` in a context of the same sandbox."""
        return self._one(_query(prompt, context, "prompt"), Children.CONTEXT, RAISE)

    def sub_rlm_batched(
        self, prompts: Sequence[str | Mapping[str, str]], context: str = ""
    ) -> list[str]:
        """`rlm_query_batched` in contexts of the same sandbox."""
        return self._many(prompts, Children.CONTEXT, None, context, RAISE)

    def usage(self) -> list[dict[str, Any]]:
        """What it and all below it have used, by depth."""
        return self._budget.usage()

    @property
    def depth(self) -> int:
        return self._budget.depth

    def usage_here(self) -> list[dict[str, Any]]:
        """What all queries in the sandbox of this one have used, by depth."""
        return self._budget.usage(of_sandbox=True)

    async def end(self) -> None:
        """End all queries below, confirmed where that can be. Never raises."""
        for batch in self._under_way:
            batch.cancel()
        if self._under_way:
            await asyncio.wait(list(self._under_way))

    def _one(self, query: Query, place: Children, on_error: str) -> str:
        if self._budget.deepest:
            self._check_depth()
            return self._questions.query(query.plain, on_error=on_error)
        [share] = self._shares(1, place)
        try:
            return loop.run(self._watched(self._ask(query, share, place), share.left_s))
        except RuntimeError as error:
            if on_error == TEXT:
                return f"[ERROR] {error}"
            raise
        finally:
            share.close()

    def _many(
        self,
        prompts: Sequence[str | Mapping[str, str]],
        place: Children,
        concurrency: int | None,
        context: str,
        on_error: str,
    ) -> list[str]:
        check_prompts(prompts)
        width = checked_width(concurrency, self._options.batch_concurrency)
        asked = [_query(one, context, f"prompt[{number}]") for number, one in enumerate(prompts)]
        if not asked:
            return []
        if self._budget.deepest:
            self._check_depth()
            plain = [query.plain for query in asked]
            return self._questions.query_batched(plain, concurrency=width, on_error=on_error)
        pairs = list(zip(asked, self._shares(len(asked), place), strict=True))

        async def ask(pair: tuple[Query, Budget]) -> str:
            return await self._ask(*pair, place)

        try:
            batch = answers(ask, pairs, width=width, on_error=on_error)
            return loop.run(self._watched(batch, pairs[0][1].left_s))
        finally:
            for _, share in pairs:
                share.close()  # also of those that never began

    def _shares(self, count: int, place: Children) -> list[Budget]:
        """Raises RuntimeError without dspy, and BudgetSpent."""
        rlm.check_installed()
        return self._budget.shares(count, sandbox_each=place is Children.SANDBOX)

    def _check_depth(self) -> None:
        if self._options.at_depth is AtDepth.RAISE:
            raise RuntimeError(
                f"this query has depth {self._budget.depth}, and max_depth is"
                f" {self._budget.depth_max}; use llm_query, or raise max_depth"
            )

    async def _watched(self, work: Coroutine[Any, Any, T], left_s: float) -> T:
        """Work that `end` ends, and its deadline: after its sandboxes, confirmed where that can be.

        Raises RuntimeError at the deadline.
        """
        task = asyncio.current_task()
        assert task is not None, "the shared loop runs tasks alone"
        self._under_way.add(task)
        try:
            async with asyncio.timeout(None if left_s == math.inf else left_s) as limit:
                return await work
        except TimeoutError:
            if not limit.expired():
                raise
            raise RuntimeError(
                f"the recursive query and all below it had {self._options.rlm_timeout_s:g} s"
                f" ({TIMEOUT}) and were ended"
            ) from None
        finally:
            self._under_way.discard(task)

    async def _ask(self, query: Query, share: Budget, place: Children) -> str:
        """One query from its beginning to its end, with its interpreter."""
        if place is Children.SANDBOX:
            share.take_sandbox()
        questions = self._questions.within(share)
        child = self.bear(place, Recursion(self._options, questions, share))
        try:
            return await loop.in_thread(
                lambda: rlm.answer(
                    child,
                    questions,
                    query=query.prompt,
                    context=query.context,
                    calls=share.calls_left,
                    recursive=not share.deepest,
                )
            )
        finally:
            share.close()
            await _retired(child)


async def _retired(child: Child) -> None:
    """Its answer counts, whatever becomes of its sandbox."""
    try:
        await child.retire()
    except FleetctlError as error:
        log.warning("the sandbox of a recursive query did not end", extra={"error": str(error)})


def _query(prompt: str | Mapping[str, str], context: str, where: str) -> Query:
    """Raises ValueError."""
    if isinstance(prompt, Mapping):
        if unknown := sorted(set(prompt) - {"query", "context"}):
            raise ValueError(f"{where} has `{unknown[0]}`; it may have `query` and `context`")
        text, context = prompt.get("query", ""), prompt.get("context", context)
    else:
        text = prompt
    check_prompt(text, where)
    if not isinstance(context, str):
        raise ValueError(f"context of {where} is a {type(context).__name__}; it must be a text")
    return Query(text, context)
