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
from typing import Any, Protocol, TypeVar

from fleetctl.common.errors import FleetctlError
from fleetctl.guest.library.fleetctl_llm_budget import TIMEOUT, RecursionBudget
from fleetctl.guest.library.fleetctl_llm_queries import Prompt, RecursiveQuery, parse_query
from fleetctl.interpreter import loop
from fleetctl.interpreter.asking import rlm
from fleetctl.interpreter.asking.questions import (
    RAISE,
    TEXT,
    Questions,
    ask_all,
    check_on_error,
    check_prompts,
    checked_width,
)
from fleetctl.interpreter.options import AtDepth, ChildPlacement, InterpreterOptions
from fleetctl.interpreter.result import InvalidArgument

log = logging.getLogger(__name__)
T = TypeVar("T")


class ChildInterpreter(rlm.CodeRunner, Protocol):
    """An interpreter below this one."""

    async def retire(self) -> None: ...


# (the requested kind of sandbox, the child's role) -> the child, not started
Bear = Callable[[ChildPlacement, "Recursion"], ChildInterpreter]


class Recursion:
    """The queries below one interpreter. bear: makes a child's interpreter; set by its owner."""

    bear: Bear

    def __init__(
        self,
        options: InterpreterOptions,
        questions: Questions,
        budget: RecursionBudget,
    ) -> None:
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
        self,
        prompt: Prompt,
        context: str = "",
        on_error: str = RAISE,
    ) -> str:
        """Returns the reply of a recursive query, or, at the greatest depth, of the model itself.

        Raises ValueError for an empty prompt; RuntimeError over a limit, without dspy, or when the
        query failed; with on_error `text` the reply is "[ERROR] why" instead of the last.
        """
        check_on_error(on_error)
        return self._one(_parse_query(prompt, context, "prompt"), self._options.children, on_error)

    def query_batched(
        self,
        prompts: Sequence[Prompt],
        concurrency: int | None = None,
        context: str = "",
        on_error: str = RAISE,
    ) -> list[str]:
        """Returns the replies in the order of the prompts, which are texts or {"query", "context"};
        `concurrency` at once, and batch_concurrency of the interpreter at most.

        Raises as `query`; when some failed, after all have ended.
        """
        check_on_error(on_error)
        return self._ask_many(
            prompts,
            self._options.children,
            concurrency,
            context,
            on_error,
        )

    def sub_rlm(self, prompt: Prompt, context: str = "") -> str:
        """Runs `rlm_query` in a context of the same sandbox."""
        return self._one(_parse_query(prompt, context, "prompt"), ChildPlacement.CONTEXT, RAISE)

    def sub_rlm_batched(self, prompts: Sequence[Prompt], context: str = "") -> list[str]:
        """Runs `rlm_query_batched` in contexts of the same sandbox."""
        return self._ask_many(
            prompts,
            ChildPlacement.CONTEXT,
            None,
            context,
            RAISE,
        )

    def usage(self) -> list[dict[str, Any]]:
        """Returns the usage of this interpreter and all below it, by depth."""
        return self._budget.usage()

    @property
    def depth(self) -> int:
        return self._budget.depth

    def usage_here(self) -> list[dict[str, Any]]:
        """Returns the usage of all queries in the sandbox of this one, by depth."""
        return self._budget.usage(of_sandbox=True)

    async def end(self) -> None:
        """Ends all queries below, confirmed where that is possible. Never raises."""
        for batch in self._under_way:
            batch.cancel()
        if self._under_way:
            await asyncio.wait(list(self._under_way))

    def _one(
        self,
        query: RecursiveQuery,
        place: ChildPlacement,
        on_error: str,
    ) -> str:
        if self._budget.deepest:
            self._check_depth()
            return self._questions.query(query.plain, on_error=on_error)
        [share] = self._shares(1, place)
        try:
            return loop.run(self._run_watched(self._ask(query, share, place), share.left_s))
        except RuntimeError as error:
            if on_error == TEXT:
                return f"[ERROR] {error}"
            raise
        finally:
            share.close()

    def _ask_many(
        self,
        prompts: Sequence[Prompt],
        place: ChildPlacement,
        concurrency: int | None,
        context: str,
        on_error: str,
    ) -> list[str]:
        check_prompts(prompts)
        width = checked_width(concurrency, self._options.batch_concurrency)
        asked = [
            _parse_query(one, context, f"prompt[{number}]") for number, one in enumerate(prompts)
        ]
        if not asked:
            return []
        if self._budget.deepest:
            self._check_depth()
            plain = [query.plain for query in asked]
            return self._questions.query_batched(plain, concurrency=width, on_error=on_error)
        pairs = list(zip(asked, self._shares(len(asked), place), strict=True))

        async def ask(pair: tuple[RecursiveQuery, RecursionBudget]) -> str:
            return await self._ask(*pair, place)

        try:
            batch = ask_all(ask, pairs, width=width, on_error=on_error)
            return loop.run(self._run_watched(batch, pairs[0][1].left_s))
        finally:
            for _, share in pairs:
                share.close()  # also of queries that never began

    def _shares(self, count: int, place: ChildPlacement) -> list[RecursionBudget]:
        """Splits the budget that is left among `count` children. Raises RuntimeError without dspy,
        and BudgetSpent.
        """
        rlm.check_installed()
        return self._budget.shares(count, sandbox_each=place is ChildPlacement.SANDBOX)

    def _check_depth(self) -> None:
        if self._options.at_depth is AtDepth.RAISE:
            raise RuntimeError(
                f"this query has depth {self._budget.depth}, and max_depth is"
                f" {self._budget.depth_max}; use llm_query, or raise max_depth"
            )

    async def _run_watched(self, work: Coroutine[Any, Any, T], left_s: float) -> T:
        """Runs work that `end` can end, with its deadline: after its sandboxes, confirmed where
        that is possible.

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

    async def _ask(
        self,
        query: RecursiveQuery,
        share: RecursionBudget,
        place: ChildPlacement,
    ) -> str:
        """Runs one query from its beginning to its end, with its interpreter."""
        if place is ChildPlacement.SANDBOX:
            share.take_sandbox()
        questions = self._questions.within(share)
        child = self.bear(place, Recursion(self._options, questions, share))
        try:
            return await loop.call_in_thread(
                lambda: rlm.answer_query(
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
            await _retire_child(child)


async def _retire_child(child: ChildInterpreter) -> None:
    """Ends a child; an error of its sandbox does not affect its result."""
    try:
        await child.retire()
    except FleetctlError as error:
        log.warning("the sandbox of a recursive query did not end", extra={"error": str(error)})


def _parse_query(prompt: Prompt, context: str, where: str) -> RecursiveQuery:
    try:
        return parse_query(prompt, context, where)
    except ValueError as error:
        raise InvalidArgument(str(error)) from None
