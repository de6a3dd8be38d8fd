"""Bugs in telling what is equal work, and in when its result becomes known."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from typing import Any
from unittest import mock

from fleetctl.controllers.model import Run, RunState
from fleetctl.controllers.reuse import content_keys
from fleetctl.controllers.reuse.content_keys import ContentFacts, ReuseKey, WorkContent
from fleetctl.engine.decide import intents
from fleetctl.engine.observe.records import Records
from fleetctl.stores.base import CachedSuccess, ReuseScope
from fleetctl.stores.sqlite.runs import SqliteCache
from fleetctl.tracking import result_cache
from tests.simulation.planted.plant import Plant, around, swapped

Context = AbstractContextManager[object]


def key_without_params() -> Context:
    """All tasks of one template are taken for the same work."""

    def make(key_of: Callable[..., ReuseKey | None]) -> Callable[..., ReuseKey | None]:
        def patched(*facts: Any) -> ReuseKey | None:
            key = key_of(*facts)
            return key and ReuseKey(key.template, "")

        return patched

    # `found` uses the name in its own module, and a success is remembered under the same.
    both = ExitStack()
    for module in (content_keys, result_cache):
        both.enter_context(around(module, "key_of", make))
    return both


def key_without_the_work() -> Context:
    """Two templates are taken for the same work when their tasks have equal parameters."""
    return swapped(content_keys, "_build_key_document", lambda case: "equal")


def key_without_a_volumes_version() -> Context:
    """A volume of the same name is taken for the same data."""

    def make(told: Callable[..., Any]) -> Callable[..., Any]:
        return lambda case: told(case) | {"volumes": []}

    return around(content_keys, "_build_key_document", make)


def failure_remembered() -> Context:
    """A run that failed is remembered like one that succeeded."""

    def make(remember: Callable[..., None]) -> Callable[..., None]:
        def patched(self: Records, owner: Any, run: Run, *rest: Any) -> None:
            ended = run.state in (RunState.FAILED, RunState.SUCCEEDED)
            remember(self, owner, replace(run, state=RunState.SUCCEEDED) if ended else run, *rest)

        return patched

    return around(Records, "_remember", make)


def remembered_when_it_begins() -> Context:
    """A key is written when the work begins, before its success is durable."""

    def make(entered: Callable[..., None]) -> Callable[..., None]:
        def patched(self: Records, owner: Any, run: Run) -> None:
            entered(self, owner, run)
            message = replace(run, state=RunState.SUCCEEDED, ended_at_s=run.started_at_s)
            self._remember(owner, message, None, {})

        return patched

    return around(Records, "record_enter", make)


def result_not_taken_along() -> Context:
    """A unit takes over that equal work succeeded, and not its result."""

    def make(take_over: Callable[..., Any]) -> Callable[..., Any]:
        def patched(*facts: Any) -> Any:
            taken = take_over(*facts)
            return taken and replace(taken, result=None)

        return patched

    return around(intents, "take_over", make)


def never_is_not_heard() -> Context:
    """The policy Never is taken for the default."""

    def make(content: Callable[..., WorkContent]) -> Callable[..., WorkContent]:
        def patched(spec: Any, controller: Any, index: int, facts: ContentFacts) -> WorkContent:
            return content(spec.model_copy(update={"cache": None}), controller, index, facts)

        return patched

    return around(result_cache, "compute_content", make)


def results_of_anybody() -> Context:
    """What other objects did is taken though nobody asked for it."""
    return swapped(result_cache, "shares_results", lambda spec: True)


def cache_apart_from_the_records() -> Context:
    """What is remembered stays so when the transaction that it came with does not."""
    kept: dict[tuple[object, str], dict[str, CachedSuccess]] = defaultdict(dict)

    def remember(self: SqliteCache, successes: Sequence[CachedSuccess]) -> None:
        for it in successes:
            kept[self._session.state, it.template_key][it.unit_key] = it

    def recall(self: SqliteCache, template_key: str, among: ReuseScope) -> Collection[str]:
        return set(kept[self._session.state, template_key])

    def get(
        self: SqliteCache,
        template_key: str,
        unit_key: str,
        among: ReuseScope,
    ) -> CachedSuccess | None:
        return kept[self._session.state, template_key].get(unit_key)

    return mock.patch.multiple(SqliteCache, remember=remember, recall=recall, get=get)


PLANTS: tuple[Plant, ...] = (
    key_without_params,
    key_without_the_work,
    key_without_a_volumes_version,
    failure_remembered,
    remembered_when_it_begins,
    result_not_taken_along,
    never_is_not_heard,
    results_of_anybody,
    cache_apart_from_the_records,
)
