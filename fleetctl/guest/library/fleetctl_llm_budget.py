"""What a tree of recursive queries may use: calls of the language model, sandboxes, and depth.

Used by fleetctl_llm_rlm.py in tasks, and by fleetctl/interpreter/asking on the host. Pure: it
counts, and asks nobody. What a query may use is taken from its parent before it begins; what it
leaves goes back when it ends, and never twice.
"""

from __future__ import annotations

import threading

MAX_CALLS, MAX_SANDBOXES = "max_llm_calls", "max_sandboxes"


class BudgetSpent(RuntimeError):
    """More was asked for than is left. Nothing was taken."""


class Budget:
    """One query of the tree; made as its root, and by `shares` for the queries below.

    calls: of the language model, answers and failures alike. sandboxes: that queries may make, the
    root's own not among them. depth_max: of queries below the root, whose own depth is 0. Any
    thread may call; the whole tree has one lock.
    """

    def __init__(self, *, calls: int, sandboxes: int, depth_max: int) -> None:
        self.depth = 0
        self.depth_max = depth_max
        self._calls = _Amount(MAX_CALLS, "calls of the language model", calls)
        self._sandboxes = _Amount(MAX_SANDBOXES, "sandboxes", sandboxes)
        self._parent: Budget | None = None
        self._closed = False
        self._lock = threading.Lock()

    @property
    def calls_left(self) -> int:
        return self._calls.free

    @property
    def sandboxes_left(self) -> int:
        return self._sandboxes.free

    @property
    def deepest(self) -> bool:
        """Whether no query may be below this one."""
        return self.depth >= self.depth_max

    def take_calls(self, count: int) -> None:
        """All of them or none: raises BudgetSpent."""
        with self._lock:
            self._check_open()
            self._calls.check(count)
            self._calls.take(count)

    def take_sandbox(self) -> None:
        """Raises BudgetSpent."""
        with self._lock:
            self._check_open()
            self._sandboxes.check(1)
            self._sandboxes.take(1)

    def shares(self, count: int, *, sandbox_each: bool) -> list[Budget]:
        """Budgets for `count` queries that may run at once: what is left here in equal parts, at
        least a call each, and a sandbox where `sandbox_each`. What cannot be divided stays.

        Raises BudgetSpent when there is not enough for all; nothing is set aside then.
        """
        with self._lock:
            self._check_open()
            self._calls.check(count)
            if sandbox_each:
                self._sandboxes.check(count)
            calls, sandboxes = self._calls.free // count, self._sandboxes.free // count
            return [self._share(calls, sandboxes) for _ in range(count)]

    def close(self) -> None:
        """The query has ended: what it leaves is its parent's again. Idempotent; whoever still
        takes from it raises BudgetSpent.
        """
        with self._lock:
            if not self._closed:
                self._closed = True
                self._hand_up(self._calls.empty(), self._sandboxes.empty())

    def _share(self, calls: int, sandboxes: int) -> Budget:
        share = type(self)(calls=calls, sandboxes=sandboxes, depth_max=self.depth_max)
        share.depth = self.depth + 1
        share._parent, share._lock = self, self._lock
        self._calls.set_aside(calls)
        self._sandboxes.set_aside(sandboxes)
        return share

    def _hand_up(self, calls: int, sandboxes: int) -> None:
        """A query that ended before one below it passes on what that one leaves."""
        above = self._parent
        while above is not None and above._closed:
            above = above._parent
        if above is not None:
            above._calls.take_back(calls)
            above._sandboxes.take_back(sandboxes)

    def _check_open(self) -> None:
        if self._closed:
            raise BudgetSpent("the recursive query has ended, so it asks nothing more")


class _Amount:
    """One countable thing at one query. name: of the option that limits it; noun: what it is."""

    def __init__(self, name: str, noun: str, allowed: int) -> None:
        self._name, self._noun = name, noun
        self._allowed = allowed
        self._used = 0  # here; what a share used counts there, and is gone from here
        self.free = allowed

    def check(self, count: int) -> None:
        """Raises BudgetSpent."""
        if count > self.free:
            below = self._allowed - self._used - self.free
            spent = f" ({below} by recursive queries, or set aside for them)" if below else ""
            raise BudgetSpent(
                f"{self._used + below} {self._noun} are used{spent} and {count} more are asked for;"
                f" {self._name} allows {self._allowed} here"
            )

    def take(self, count: int) -> None:
        self.free -= count
        self._used += count

    def set_aside(self, count: int) -> None:
        self.free -= count

    def take_back(self, count: int) -> None:
        self.free += count

    def empty(self) -> int:
        """What was left."""
        left, self.free = self.free, 0
        return left
