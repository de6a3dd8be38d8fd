"""A tree of recursive queries uses what it was given, whatever ends when."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.guest.library.fleetctl_llm_budget import Budget, BudgetSpent

CALLS, SANDBOXES = 50, 20


def root(calls: int = CALLS, sandboxes: int = SANDBOXES) -> Budget:
    return Budget(calls=calls, sandboxes=sandboxes, depth_max=2)


class Tree:
    """A root and all queries below it, with what was really asked of the model and providers."""

    def __init__(self, kind: type[Budget] = Budget) -> None:
        self.all = [kind(calls=CALLS, sandboxes=SANDBOXES, depth_max=2)]
        self.open = list(self.all)
        self.calls = self.sandboxes = 0

    def step(self, move: str, which: int, count: int) -> None:
        budget = self.open[which % len(self.open)]
        try:
            if move == "ask":
                budget.take_calls(count)
                self.calls += count
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

    def check(self) -> None:
        assert sum(one.calls_left for one in self.all) == CALLS - self.calls
        assert sum(one.sandboxes_left for one in self.all) == SANDBOXES - self.sandboxes
        assert all(one.calls_left >= 0 and one.sandboxes_left >= 0 for one in self.all)


MOVES = st.tuples(
    st.sampled_from(["ask", "sandbox", "share", "close"]), st.integers(0, 40), st.integers(1, 6)
)


@given(st.lists(MOVES, max_size=40))
def test_nothing_is_lost_and_nothing_comes_twice_in_whatever_order_queries_end(
    moves: list[tuple[str, int, int]],
) -> None:
    tree = Tree()
    for move in moves:
        tree.step(*move)
        tree.check()


class ReturnsTwice(Budget):
    def close(self) -> None:
        left = (self._calls.free, self._sandboxes.free)
        super().close()
        self._hand_up(*left)


class CountsABatchOnce(Budget):
    def shares(self, count: int, *, sandbox_each: bool) -> list[Budget]:
        share = super().shares(1, sandbox_each=sandbox_each)[0]
        return [share, *(self._share(share.calls_left, 0) for _ in range(count - 1))]


@pytest.mark.parametrize("planted", [ReturnsTwice, CountsABatchOnce])
def test_the_invariant_finds_a_planted_bug(planted: type[Budget]) -> None:
    tree = Tree(planted)
    tree.step("share", 0, 3)
    tree.step("close", 1, 1)
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
    budget.take_calls(1)
    with pytest.raises(BudgetSpent, match=r"7 calls .* \(6 by recursive queries, or set aside"):
        budget.take_calls(1)


def test_what_a_query_leaves_returns_past_a_parent_that_ended_first() -> None:
    budget = root()
    (child,) = budget.shares(1, sandbox_each=False)
    (grandchild,) = child.shares(1, sandbox_each=False)
    assert (child.depth, grandchild.depth, grandchild.deepest) == (1, 2, True)
    grandchild.take_calls(10)
    child.close()
    assert budget.calls_left == 0
    grandchild.close()
    assert budget.calls_left == CALLS - 10
    with pytest.raises(BudgetSpent, match="has ended"):
        grandchild.take_calls(1)
