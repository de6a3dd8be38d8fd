"""A tree of recursive queries uses what it was given, whatever ends when."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.guest.library.fleetctl_llm_budget import (
    Ask,
    BudgetSpent,
    Hold,
    RecursionBudget,
    Unpriced,
)

CALLS, SANDBOXES, TOKENS, USD = 50, 20, 5000, 0.05
NANO_USD = 50_000_000
HUNDRED = Ask(100, 0.001)


def root(calls: int = CALLS, sandboxes: int = SANDBOXES, **limits: float) -> RecursionBudget:
    return RecursionBudget(calls=calls, sandboxes=sandboxes, depth_max=2, **limits)  # type: ignore[arg-type]


class Tree:
    """A root and all queries below it, with what was really asked of the model and providers."""

    def __init__(
        self, kind: type[RecursionBudget] = RecursionBudget, hold: type[Hold] = Hold
    ) -> None:
        limits = {"calls": CALLS, "sandboxes": SANDBOXES, "tokens": TOKENS}
        self.all = [kind(depth_max=2, usd=USD, **limits)]
        self.open = list(self.all)
        self.holds: list[Hold] = []
        self.hold = hold
        self.calls = self.sandboxes = self.tokens = self.nano_usd = 0

    def step(self, move: str, which: int, count: int) -> None:
        budget = self.open[which % len(self.open)]
        try:
            if move == "ask":
                self.holds += [
                    self.hold(one._budget, one.ask) for one in budget.hold([HUNDRED] * count)
                ]
                self.calls += count
            elif move == "answer" and self.holds:
                self._answer(self.holds.pop(which % len(self.holds)), lost=count > 5)
            elif move == "sandbox":
                budget.take_sandbox()
                self.sandboxes += 1
            elif move == "share" and not budget.deepest:
                shares = budget.shares(count, sandbox_each=bool(which % 2))
                assert len(shares) == count
                self.all += shares
                self.open += shares
            elif move == "close" and budget is not self.all[0]:
                budget.close()
                budget.close()
                if which % 2:
                    self.open.remove(budget)  # else somebody still asks it
        except BudgetSpent:
            return

    def _answer(self, hold: Hold, *, lost: bool) -> None:
        """A tenth of its worst; after one that was lost, where that is within the budget."""
        try:
            hold.begin()
            if lost:
                self._used(100)  # whatever becomes of the next try
                hold.again()
            self._used(10)
            hold.charge(10, 0.0001)
        except BudgetSpent:
            pass
        finally:
            hold.end()
            hold.end()

    def _used(self, tokens: int) -> None:
        self.tokens += tokens
        self.nano_usd += tokens * 10_000

    def check(self) -> None:
        assert sum(one.calls_left for one in self.all) == CALLS - self.calls
        assert sum(one.sandboxes_left for one in self.all) == SANDBOXES - self.sandboxes
        assert all(one.calls_left >= 0 and one.sandboxes_left >= 0 for one in self.all)
        aside = len(self.holds)
        tokens = sum(one.tokens_left or 0 for one in self.all)
        assert tokens == TOKENS - self.tokens - 100 * aside
        dollars = sum(one.nano_usd_left or 0 for one in self.all)
        assert dollars == NANO_USD - self.nano_usd - 1_000_000 * aside
        assert all((one.tokens_left or 0) >= 0 for one in self.all)
        usage = self.all[0].usage()
        assert sum(row["tokens"] for row in usage) == self.tokens
        assert sum(row["calls"] for row in usage) == self.calls


MOVES = st.tuples(
    st.sampled_from(["ask", "answer", "sandbox", "share", "close"]),
    st.integers(0, 40),
    st.integers(1, 6),
)


@given(st.lists(MOVES, max_size=40))
def test_nothing_is_lost_and_nothing_comes_twice_in_whatever_order_queries_end(
    moves: list[tuple[str, int, int]],
) -> None:
    tree = Tree()
    for move in moves:
        tree.step(*move)
        tree.check()


def _returns_twice(counted: str) -> type[RecursionBudget]:
    class ReturnsTwice(RecursionBudget):
        def close(self) -> None:
            left = {counted: self._amounts[counted].free or 0}
            super().close()
            self._hand_up(left)

    return ReturnsTwice


def _counts_a_batch_once(counted: str) -> type[RecursionBudget]:
    class CountsABatchOnce(RecursionBudget):
        def shares(self, count: int, *, sandbox_each: bool) -> list[RecursionBudget]:
            shares = super().shares(count, sandbox_each=sandbox_each)
            for share in shares[1:]:
                self._amounts[counted].take_back(share._amounts[counted].free or 0)
            return shares

    return CountsABatchOnce


@pytest.mark.parametrize("counted", ["calls", "sandboxes", "tokens", "usd"])
@pytest.mark.parametrize("plant", [_returns_twice, _counts_a_batch_once])
def test_the_invariant_finds_a_planted_bug(
    plant: Callable[[str], type[RecursionBudget]], counted: str
) -> None:
    tree = Tree(plant(counted))
    tree.step("share", 0, 3)
    tree.step("close", 1, 1)
    with pytest.raises(AssertionError):
        tree.check()


class CountsNoRetry(Hold):
    def again(self) -> None:
        self._unknown = True


class ReturnsTwice(Hold):
    def end(self) -> None:
        self._ended = False
        super().end()


@pytest.mark.parametrize("planted", [CountsNoRetry, ReturnsTwice])
def test_the_invariant_finds_a_planted_bug_of_a_call(planted: type[Hold]) -> None:
    tree = Tree(hold=planted)
    tree.step("ask", 0, 2)
    tree.step("answer", 0, 6)
    with pytest.raises(AssertionError):
        tree.check()


def test_a_batch_is_set_aside_for_all_of_it_or_not_at_all() -> None:
    budget = root(calls=7, sandboxes=2)
    with pytest.raises(BudgetSpent, match=r"0 sandboxes are used and 3 more .* max_sandboxes"):
        budget.shares(3, sandbox_each=True)
    with pytest.raises(BudgetSpent, match="8 more are asked for; max_llm_calls allows 7 here"):
        budget.shares(8, sandbox_each=False)
    assert budget.calls_left == 7
    shares = budget.shares(3, sandbox_each=False)
    assert [one.calls_left for one in shares] == [2, 2, 2]
    budget.hold([Ask()])
    with pytest.raises(BudgetSpent, match=r"7 calls .* \(6 by recursive queries, or set aside"):
        budget.hold([Ask()])


def test_what_a_query_leaves_returns_past_a_parent_that_ended_first() -> None:
    budget = root()
    (child,) = budget.shares(1, sandbox_each=False)
    (grandchild,) = child.shares(1, sandbox_each=False)
    assert (child.depth, grandchild.depth, grandchild.deepest) == (1, 2, True)
    grandchild.hold([Ask()] * 10)
    child.close()
    assert budget.calls_left == 0
    grandchild.close()
    assert budget.calls_left == CALLS - 10
    with pytest.raises(BudgetSpent, match="has ended"):
        grandchild.hold([Ask()])


def test_a_call_is_refused_by_its_worst_and_what_it_did_not_cost_can_be_used() -> None:
    budget = root(tokens=250, usd=0.0025)
    first, second = budget.hold([HUNDRED] * 2)
    said = r"200 tokens are used \(200 by .* set aside\) and 100 more .* max_llm_tokens allows 250"
    with pytest.raises(BudgetSpent, match=said):
        budget.hold([HUNDRED])
    first.begin()
    first.charge(30, 0.0001)
    first.end()
    second.begin()
    second.end()  # nobody knows what it cost
    assert (budget.tokens_left, budget.nano_usd_left) == (120, 1_400_000)
    dear = r"\$0.001100 of the language model is used and \$0.002000 more .* allows \$0.002500 here"
    with pytest.raises(BudgetSpent, match=dear):
        budget.hold([Ask(10, 0.002)])
    (row,) = budget.usage()
    assert (row["tokens"], row["usd"], row["unpriced"]) == (130, 0.0011, 0)


def test_an_unknown_price_is_refused_where_dollars_are_limited_and_else_counted_as_unknown() -> (
    None
):
    with pytest.raises(Unpriced, match=r"its price is unknown, .*: name it"):
        root(usd=1.0).hold([HUNDRED, Ask(100, None, "name it")])
    budget = root()
    (hold,) = budget.hold([Ask(100)])
    hold.begin()
    hold.charge(10, None)
    hold.end()
    assert budget.usage() == [
        {"depth": 0, "calls": 1, "tokens": 10, "usd": 0.0, "unpriced": 1, "sandboxes": 0}
    ]


def test_a_call_that_costs_more_than_its_worst_is_a_debt_of_the_whole_tree() -> None:
    budget = root(tokens=1000)
    (child,) = budget.shares(1, sandbox_each=False)
    (hold,) = child.hold([HUNDRED])
    child.close()
    hold.charge(1200, 0.0)
    hold.end()
    assert budget.tokens_left == -200
    with pytest.raises(BudgetSpent, match="1200 tokens are used"):
        budget.hold([Ask(1)])


def test_all_below_a_query_of_the_root_ends_at_one_time() -> None:
    clock = [100.0]
    budget = RecursionBudget(
        calls=9, sandboxes=0, depth_max=2, timeout_s=60.0, now_s=lambda: clock[0]
    )
    (child,) = budget.shares(1, sandbox_each=False)
    clock[0] += 50.0
    (below,) = child.shares(1, sandbox_each=False)
    (hold,) = below.hold([Ask()])
    assert (child.left_s, below.left_s) == (10.0, 10.0)
    clock[0] += 10.0
    with pytest.raises(BudgetSpent, match=r"had 60 s \(rlm_timeout\), which have passed"):
        below.hold([Ask()])
    with pytest.raises(BudgetSpent):
        hold.begin()
    below.close()
    child.close()
    (later,) = budget.shares(1, sandbox_each=False)  # of the next query of the root
    assert later.left_s == 60.0
