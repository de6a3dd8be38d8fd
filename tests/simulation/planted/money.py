"""Bugs in counting money: what is set aside is forgotten, is freed too early, or is never asked."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from typing import Any

from fleetctl.controllers import budget
from fleetctl.controllers.budget import Allowance, ReservedCost, UnitPrice
from fleetctl.controllers.history.history import History
from fleetctl.controllers.model import Run, RunState
from fleetctl.controllers.schedule import affordable
from fleetctl.engine.capacity import price_book
from fleetctl.engine.decide import intents
from fleetctl.engine.money import ledger as reservations
from fleetctl.engine.money.budgets import Budgets
from fleetctl.engine.observe import observations
from fleetctl.specs.blocks.nodes import ONE
from fleetctl.stores.sqlite.events import SqliteLedger
from tests.simulation.planted.plant import Plant, around, swapped

Context = AbstractContextManager[object]


def reservations_forgotten_in_a_crash() -> Context:
    """Live runs that are read back hold nothing of a budget."""

    def make(reserved_usd: Callable[..., float | None]) -> Callable[..., float | None]:
        def patched(run: Run, *, worst_usd: float | None, now_s: float) -> float | None:
            return reserved_usd(run, worst_usd=worst_usd, now_s=now_s) if run.name in alive else 0.0

        return patched

    alive: set[str] = set()

    def begun(began: Callable[..., None]) -> Callable[..., None]:
        def patched(self: History, run: Run) -> None:
            alive.add(run.name)
            began(self, run)

        return patched

    def load(load_: Callable[..., None]) -> Callable[..., None]:
        def patched(self: Budgets) -> None:
            alive.clear()
            load_(self)

        return patched

    return _all(
        around(budget, "reserved_usd", make),
        around(History, "began", begun),
        around(Budgets, "load", load),
    )


def unknown_price_is_free() -> Context:
    """A run whose price nobody knows counts as one that costs nothing."""

    def make(unit_price: Callable[..., UnitPrice]) -> Callable[..., UnitPrice]:
        def patched(*which: Any) -> UnitPrice:
            found = unit_price(*which)
            return replace(found, usd_per_s=found.usd_per_s or 0.0)

        return patched

    return around(affordable, "unit_price_of", make)


def released_when_stopped_and_not_when_gone() -> Context:
    """A run that starts or is being stopped holds nothing any more, though its machine bills."""

    def make(live: Callable[..., Any]) -> Callable[..., Any]:
        return lambda engine, track: (
            run for run in live(engine, track) if run.state is RunState.RUNNING
        )

    return around(reservations, "_list_live", make)


def a_period_counts_the_one_before_again() -> Context:
    """After the turn of a period, what the last one spent counts a second time."""
    return swapped(budget, "period_of", lambda period, now_s: (0.0, now_s + 3600.0))


def spent_goes_with_its_object() -> Context:
    """What a deleted object spent is forgotten by the budgets that it was under."""

    def make(drop: Callable[..., None]) -> Callable[..., None]:
        def patched(self: Any, track: Any) -> None:
            drop(self, track)
            ledger = self._budgets._charges._ledger
            for key in [key for key, entry in ledger.items() if entry.labels]:
                ledger[key] = replace(ledger[key], usd=0.0)

        return patched

    return around(intents.Intents, "drop", make)


def charges_are_kept_in_memory_alone() -> Context:
    """What ended runs are charged is not written with their end."""
    return swapped(SqliteLedger, "add", lambda self, entries: None)


def passes_of_a_turn_do_not_see_each_other() -> Context:
    """Each pass takes from the money that was there at the begin of the turn."""

    def make(allowance: Callable[..., Allowance]) -> Callable[..., Allowance]:
        def patched(self: Budgets, work: Any, now_s: float) -> Allowance:
            found = allowance(self, work, now_s)
            return replace(found, accounts=[replace(it) for it in found.accounts])

        return patched

    return around(Budgets, "allowance", make)


def only_the_first_start_of_a_pass_is_paid() -> Context:
    """A pass asks once whether there is money, and starts as many as parallelism allows."""

    def make(take: Callable[..., Any]) -> Callable[..., Any]:
        paid: dict[int, Any] = {}

        def patched(self: Allowance, index: int, provider: str) -> Any:
            if id(self) not in paid:
                paid.clear()
                paid[id(self)] = (self, take(self, index, provider))
                return paid[id(self)][1]
            first = paid[id(self)][1]
            return ReservedCost(first.usd) if isinstance(first, ReservedCost) else first

        return patched

    return around(Allowance, "take", make)


def a_cheaper_place_is_not_paid_for() -> Context:
    """After a denial at the best place, the next one starts without setting anything aside."""

    def make(take: Callable[..., Any]) -> Callable[..., Any]:
        def patched(self: Allowance, index: int, provider: str) -> Any:
            if (id(self), index) in denied:
                return ReservedCost(0.0)
            found = take(self, index, provider)
            if not isinstance(found, ReservedCost):
                denied.add((id(self), index))
            return found

        return patched

    denied: set[tuple[int, int]] = set()
    return around(Allowance, "take", make)


def a_list_is_priced_at_its_first() -> Context:
    """Of several GPUs the first is taken for the one that will come."""

    def make(charged: Callable[..., float | None]) -> Callable[..., float | None]:
        def patched(backend: Any, said: Any, template: Any) -> float | None:
            gpu = template.resources.gpu
            first = template if gpu is None else template.with_gpu(gpu.each[0])
            return charged(backend, said, first)

        return patched

    return around(price_book, "price_attempt", make)


def what_is_not_told_is_the_cheapest() -> Context:
    """A run that does not tell which GPU it got is charged as if it had got the cheapest."""

    def make(possible: Callable[..., Any]) -> Callable[..., Any]:
        def patched(wanted: Any, devices: Any) -> Any:
            cheapest = min(wanted.each, key=lambda it: it.name != "T4")
            return possible(wanted, devices) if devices else cheapest

        return patched

    return around(observations, "possible_gpus", make)


def a_gang_costs_what_one_node_costs() -> Context:
    """The price of an attempt is that of one of its nodes."""
    return swapped(price_book, "nodes_of", lambda template: ONE)


def nodes_that_it_did_not_get_are_paid_for() -> Context:
    """An attempt that got fewer nodes than the most is charged for the most."""
    return swapped(observations, "_of_fewer_nodes", lambda work, run, seen: run)


def _all(*contexts: Context) -> Context:
    stack = ExitStack()
    for context in contexts:
        stack.enter_context(context)
    return stack


PLANTS: tuple[Plant, ...] = (
    reservations_forgotten_in_a_crash,
    unknown_price_is_free,
    released_when_stopped_and_not_when_gone,
    a_period_counts_the_one_before_again,
    spent_goes_with_its_object,
    charges_are_kept_in_memory_alone,
    passes_of_a_turn_do_not_see_each_other,
    only_the_first_start_of_a_pass_is_paid,
    a_cheaper_place_is_not_paid_for,
    a_list_is_priced_at_its_first,
    what_is_not_told_is_the_cheapest,
    a_gang_costs_what_one_node_costs,
    nodes_that_it_did_not_get_are_paid_for,
)
