"""Limits a tree of recursive queries: calls, tokens and dollars of the language model, sandboxes,
depth and time.

Used by fleetctl_llm_rlm.py in tasks, and by fleetctl/interpreter/asking on the host. Only counts. A
query's share is taken from its parent before it begins; the rest returns when it ends, and never
twice. The worst cost of a call is reserved before the call; the unused part returns when the cost
is known.
"""

from __future__ import annotations

import math
import threading
import time
from typing import Any, Callable, Dict, Mapping, NamedTuple, Sequence

CALLS, SANDBOXES, TOKENS, USD, UNPRICED = "calls", "sandboxes", "tokens", "usd", "unpriced"
TIMEOUT = "rlm_timeout"
Depths = Dict[int, Dict[str, int]]  # use of the queries at each depth
NANO = 10**9  # dollars are counted in whole billionths, so that sums are exact


class BudgetSpent(RuntimeError):
    """More was requested than is left. The budget is unchanged."""


class Unpriced(RuntimeError):
    """Dollars are limited, and the cost of the call is unknown. The budget is unchanged."""


class Ask(NamedTuple):
    """A call at its worst. usd: None without a known price; unpriced: how to give it one."""

    tokens: int = 0
    usd: float | None = None
    unpriced: str = ""


class RecursionBudget:
    """The budget of a query of the tree; made for its root, and by `shares` for queries below.

    calls: of the language model, answers and failures alike; tokens: in and out, and usd: of these
    calls, None for no limit. sandboxes: that queries may make, the root's own not among them.
    depth_max: of queries below the root, whose own depth is 0. timeout_s: for each query of the
    root's with all queries below. Any thread may call; the whole tree has one lock.
    """

    def __init__(
        self,
        *,
        calls: int,
        sandboxes: int,
        depth_max: int,
        tokens: int | None = None,
        usd: float | None = None,
        timeout_s: float | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.depth = 0
        self.depth_max = depth_max
        self.ends_at_s: float | None = None  # by `now_s`
        self._amounts = {
            CALLS: _Amount("max_llm_calls", "calls of the language model are", calls),
            SANDBOXES: _Amount("max_sandboxes", "sandboxes are", sandboxes),
            TOKENS: _Amount("max_llm_tokens", "tokens are", tokens),
            USD: _Dollars("max_llm_usd", "of the language model is", _to_nano_usd(usd)),
        }
        self._parent: RecursionBudget | None = None
        self._closed = False
        self._tree = _Tree(timeout_s, now_s)
        self._sandbox: Depths = {}  # use of all queries in its sandbox

    @property
    def calls_left(self) -> int:
        return self._amounts[CALLS].free or 0

    @property
    def sandboxes_left(self) -> int:
        return self._amounts[SANDBOXES].free or 0

    @property
    def tokens_left(self) -> int | None:
        return self._amounts[TOKENS].free

    @property
    def nano_usd_left(self) -> int | None:
        return self._amounts[USD].free

    @property
    def deepest(self) -> bool:
        """Returns whether no query may be below this one."""
        return self.depth >= self.depth_max

    @property
    def left_s(self) -> float:
        """Returns the seconds until its end; infinite for the root, and without a limit."""
        ends_at_s = self.ends_at_s
        if ends_at_s is None:
            return math.inf
        return max(0.0, ends_at_s - self._tree.now_s())

    @property
    def limits_usd(self) -> bool:
        return self._amounts[USD].free is not None

    def hold(self, asks: Sequence[Ask]) -> list[Hold]:
        """Reserves these calls at their worst: all of them, or none.

        Raises BudgetSpent; Unpriced when dollars are limited and one has no price.
        """
        with self._tree.lock:
            self._check_open()
            self._amounts[CALLS].check(len(asks))
            self._check_cost(asks)
            self._amounts[CALLS].take(len(asks))
            self._spend(CALLS, len(asks))
            return [self._set_aside(Hold(self, ask)) for ask in asks]

    def take_sandbox(self) -> None:
        """Takes one sandbox. Raises BudgetSpent."""
        with self._tree.lock:
            self._check_open()
            self._amounts[SANDBOXES].check(1)
            self._amounts[SANDBOXES].take(1)
            self._spend(SANDBOXES, 1)

    def shares(self, count: int, *, sandbox_each: bool) -> list[RecursionBudget]:
        """Returns budgets for `count` queries that may run at once: the rest of this one in equal
        parts, at least a call each, and a sandbox where `sandbox_each`. Remainders stay here.

        Raises BudgetSpent when there is not enough for all; the budget is unchanged then.
        """
        with self._tree.lock:
            self._check_open()
            for name, amount in self._amounts.items():
                if sandbox_each or name is not SANDBOXES:
                    amount.check(count)
            parts = {name: amount.part(count) for name, amount in self._amounts.items()}
            ends_at_s = self.ends_at_s
            if self._parent is None and self._tree.timeout_s is not None:
                ends_at_s = self._tree.now_s() + self._tree.timeout_s
            shares = [self._share(parts, ends_at_s) for _ in range(count)]
            if not sandbox_each:
                for share in shares:
                    share._sandbox = self._sandbox
            return shares

    def close(self) -> None:
        """Ends the query: the rest returns to its parent. Idempotent; later reservations raise
        BudgetSpent.
        """
        with self._tree.lock:
            if not self._closed:
                self._closed = True
                self._hand_up({name: one.empty() for name, one in self._amounts.items()})

    def usage(self, *, of_sandbox: bool = False) -> list[dict[str, Any]]:
        """Returns the use of the whole tree, a mapping for each depth: `depth`, `calls`, `tokens`,
        `usd`, `unpriced` (calls without a known price, which are not in `usd`) and `sandboxes`.

        of_sandbox: only the use of queries in the sandbox of this one.
        """
        with self._tree.lock:
            depths = self._sandbox if of_sandbox else self._tree.depths
            return [
                {"depth": depth, **spent, USD: spent[USD] / NANO}
                for depth, spent in sorted(depths.items())
            ]

    def _spend(self, name: str, count: int) -> None:
        for depths in (self._tree.depths, self._sandbox):
            names = (CALLS, TOKENS, USD, UNPRICED, SANDBOXES)
            depths.setdefault(self.depth, dict.fromkeys(names, 0))[name] += count

    def _share(self, parts: Mapping[str, int | None], ends_at_s: float | None) -> RecursionBudget:
        share = type(self)(
            calls=0,
            sandboxes=0,
            depth_max=self.depth_max,
        )
        share.depth = self.depth + 1
        share.ends_at_s = ends_at_s
        share._parent = self
        share._tree = self._tree
        for name, part in parts.items():
            self._amounts[name].set_aside(part)
            share._amounts[name].grant(part)
        return share

    def _set_aside(self, hold: Hold) -> Hold:
        self._amounts[TOKENS].set_aside(hold.ask.tokens)
        self._amounts[USD].set_aside(_to_nano_usd(hold.ask.usd))
        return hold

    def _check_cost(self, asks: Sequence[Ask]) -> None:
        self._amounts[TOKENS].check(sum(ask.tokens for ask in asks))
        dollars = self._amounts[USD]
        if dollars.free is not None:
            unpriced = [ask.unpriced for ask in asks if ask.usd is None]
            if unpriced:
                raise Unpriced(
                    "max_llm_usd limits what the language model costs, and its price is unknown, so"
                    " it is not asked: %s" % unpriced[0]
                )
        dollars.check(sum(_to_nano_usd(ask.usd) or 0 for ask in asks))

    def _hand_up(self, left: Mapping[str, int]) -> None:
        """Passes the rest of a lower query on, when this one ended first."""
        above = self._parent
        while above is not None and above._closed:
            above = above._parent
        if above is not None:
            for name, count in left.items():
                above._amounts[name].take_back(count)

    def _check_open(self) -> None:
        if self._closed:
            raise BudgetSpent("the recursive query has ended, so it asks nothing more")
        if self.left_s <= 0:
            raise BudgetSpent(
                "the recursive query and all below it had %g s (%s), which have passed"
                % (self._tree.timeout_s or 0, TIMEOUT)
            )


class Hold:
    """A reservation for a call, until its cost is known. `end` must follow; any thread may call."""

    def __init__(self, budget: RecursionBudget, ask: Ask) -> None:
        self.ask = ask
        self._budget = budget
        self._aside = {TOKENS: ask.tokens, USD: _to_nano_usd(ask.usd) or 0}
        self._used = {TOKENS: 0, USD: 0}
        self._unpriced = False
        self._unknown = False  # a try is under way, or its answer was lost
        self._ended = False

    def begin(self) -> None:
        """Begins the call. Raises BudgetSpent when it is too late."""
        with self._budget._tree.lock:
            self._budget._check_open()
            if self._ended:
                raise BudgetSpent("the recursive query has ended, so it asks nothing more")
            self._unknown = True

    def charge(self, tokens: int, usd: float | None) -> None:
        """Charges a try. usd: None when unknown; then the worst case counts, if known."""
        with self._budget._tree.lock:
            self._charge(tokens, usd)

    def again(self) -> None:
        """Begins one more try, after one whose answer was lost. Raises BudgetSpent."""
        with self._budget._tree.lock:
            self._charge(*self.ask[:2])
            self._budget._check_open()
            self._budget._check_cost([self.ask])
            self._budget._set_aside(self)
            self._aside[TOKENS] += self.ask.tokens
            self._aside[USD] += _to_nano_usd(self.ask.usd) or 0
            self._unknown = True

    def end(self) -> None:
        """Ends the tries: the unused part returns to the query, or to its parent when the query has
        ended. A try of unknown cost counts at its worst. Idempotent.
        """
        budget = self._budget
        with budget._tree.lock:
            if self._ended:
                return
            if self._unknown:
                self._charge(*self.ask[:2])
            self._ended = True
            for name, used in (*self._used.items(), (UNPRICED, int(self._unpriced))):
                budget._spend(name, used)
            # Above the worst where that was an estimate: then it is a debt.
            left = {name: self._aside[name] - used for name, used in self._used.items()}
            if budget._closed:
                budget._hand_up(left)
                return
            for name, used in self._used.items():
                budget._amounts[name].use(used, left[name])

    def _charge(self, tokens: int, usd: float | None) -> None:
        self._unknown = False
        nano = _to_nano_usd(self.ask.usd if usd is None else usd)
        self._unpriced = self._unpriced or nano is None
        self._used[TOKENS] += tokens
        self._used[USD] += nano or 0


class _Tree:
    """The state that all budgets of a tree share."""

    def __init__(self, timeout_s: float | None, now_s: Callable[[], float]) -> None:
        self.lock = threading.RLock()
        self.timeout_s = timeout_s
        self.now_s = now_s
        self.depths: Depths = {}


class _Amount:
    """One countable thing of a query. name: of the option that limits it; noun: for messages."""

    def __init__(
        self,
        name: str,
        noun: str,
        allowed: int | None,
    ) -> None:
        self._name = name
        self._noun = noun
        self._used = 0  # here; the use of a share counts at the share
        self.grant(allowed)

    def grant(self, allowed: int | None) -> None:
        """Sets the limit; None removes it."""
        self._allowed = self.free = allowed

    def check(self, count: int) -> None:
        """Raises BudgetSpent when less than `count` is left."""
        if self.free is None or self._allowed is None or count <= self.free:
            return
        below = self._allowed - self._used - self.free
        spent = (
            " (%s by recursive queries, or set aside)" % self._format_count(below)
            if below > 0
            else ""
        )
        raise BudgetSpent(
            "%s %s used%s and %s more are asked for; %s allows %s here"
            % (
                self._format_count(self._used + below),
                self._noun,
                spent,
                self._format_count(count),
                self._name,
                self._format_count(self._allowed),
            )
        )

    def take(self, count: int) -> None:
        self.set_aside(count)
        self._used += count

    def use(self, count: int, left: int) -> None:
        """Settles a reservation: counts `count` as used and returns `left`."""
        self._used += count
        self.take_back(left)

    def set_aside(self, count: int | None) -> None:
        self.take_back(-(count or 0))

    def take_back(self, count: int) -> None:
        if self.free is not None:
            self.free += count

    def part(self, count: int) -> int | None:
        if self.free is None:
            return None
        return self.free // count

    def empty(self) -> int:
        """Returns the rest, and is empty then."""
        left = self.free or 0
        if self.free is not None:
            self.free = 0
        return left

    def _format_count(self, count: int) -> str:
        return str(count)


class _Dollars(_Amount):
    def _format_count(self, count: int) -> str:
        return "$%.6f" % (count / NANO)


def _to_nano_usd(usd: float | None) -> int | None:
    """Converts to billionths, rounded up: a little more than 0 is not 0."""
    if usd is None:
        return None
    return math.ceil(usd * NANO - 1e-6)
