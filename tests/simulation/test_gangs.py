"""Attempts of several nodes: what must hold over many lives, and bugs that must be seen."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from types import SimpleNamespace
from typing import Any

import pytest

from fleetctl.guest.journal.record import Journal
from fleetctl.guest.nodes import gang as outcome
from fleetctl.providers.local.supervisor.run.gang import LocalGang
from fleetctl.providers.local.supervisor.run.together import GangRunner
from tests.simulation.gangs import broken
from tests.simulation.planted.plant import around, swapped

SEEDS = 300


def test_all_begin_or_none_and_all_end_with_the_first_that_fails() -> None:
    assert [(seed, wrong) for seed in range(SEEDS) if (wrong := broken(seed))] == []


def a_half_started_gang_counts_as_started() -> AbstractContextManager[object]:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def is_ready(gang: Any, member: Any) -> bool:
            return bool(original(gang, member)) or len(gang._ready) > gang.count / 2

        return is_ready

    return around(LocalGang, "is_ready", make)


def a_lost_node_does_not_end_the_others() -> AbstractContextManager[object]:
    return swapped(LocalGang, "decides", lambda gang, member: False)


def what_could_not_be_made_leaves_its_journals() -> AbstractContextManager[object]:
    return swapped(GangRunner, "_let_go", lambda together, gang, journal: None)


def the_end_of_node_0_is_the_end() -> AbstractContextManager[object]:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def over(together: Any, gang: Any, sandbox: Any, result: str, ended: Any) -> None:
            original(together, gang, sandbox, result, ended)
            if sandbox.rank == 0 and sandbox.run is not None:
                sandbox.run.journal.end("", ended, sandbox_open=False)
                sandbox.run = None

        return over

    return around(GangRunner, "over", make)


def a_second_gang_of_one_attempt() -> AbstractContextManager[object]:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def opened(journal: Any, directory: int, run: str, *more: Any, **named: Any) -> None:
            with suppress(FileNotFoundError):
                os.unlink(f"{run}.jsonl", dir_fd=directory)
            original(journal, directory, run, *more, **named)

        return opened

    return around(Journal, "__init__", make)


@pytest.mark.parametrize(
    "plant",
    [
        a_second_gang_of_one_attempt,
        a_half_started_gang_counts_as_started,
        a_lost_node_does_not_end_the_others,
        what_could_not_be_made_leaves_its_journals,
        the_end_of_node_0_is_the_end,
    ],
    ids=lambda it: it.__name__.replace("_", "-"),
)
def test_a_planted_bug_is_seen(plant: Callable[[], AbstractContextManager[object]]) -> None:
    with plant():
        assert any(broken(seed) for seed in range(SEEDS))


def test_a_node_that_ends_as_the_last_is_ready_keeps_the_others_from_nothing() -> None:
    gang: LocalGang[SimpleNamespace] = LocalGang({"nodes": 2, "gpus": {}})
    pipes = [os.pipe() for _ in range(2)]
    gang.members = [SimpleNamespace(rank=rank, channel=it[1]) for rank, it in enumerate(pipes)]
    os.close(pipes[0][0])  # nobody reads there any more
    gang.begin(None)
    assert os.read(pipes[1][0], 64) == b"null\n"
    for handle in (pipes[0][1], *pipes[1]):
        os.close(handle)


def end(at: float, reason: str = "Completed", **more: Any) -> dict[str, Any]:
    ok = reason == "Completed"
    code = 0 if ok else 1
    return {
        "ok": ok,
        "infra": False,
        "reason": reason,
        "message": "",
        "exit": code,
        "at": at,
    } | more


@pytest.mark.parametrize(
    ("ends", "reason", "node"),
    [
        ([end(9), end(8)], "Completed", 0),
        ([end(9), end(8, "ExitCode:1")], "Completed", 0),  # node 0 decides
        ([end(9, "ExitCode:3"), end(8)], "ExitCode:3", 0),
        ([end(9, "ExitCode:3"), end(8, "Signal:KILL")], "Signal:KILL", 1),  # the first to fail
        ([end(8, "ExitCode:1"), end(9, "OOMKilled")], "OOMKilled", 1),  # which is never a result
        ([end(8, "ExitCode:1"), end(20, "Signal:KILL")], "ExitCode:1", 0),
        ([end(9, "NodeEnded", stopped=True), end(8, "Error")], "Error", 1),
        ([end(9, "Timeout", outside=True), end(8, "Timeout", outside=True)], "Timeout", 0),
        # What follows the loss of a machine is its consequence, and what came long before is not.
        ([end(9, "ExitCode:1"), end(8, "Lost", lost=True)], "NodeLost", 0),
        ([end(9, "ExitCode:1"), end(60, "Lost", lost=True)], "NodeLost", 0),
        ([end(9, "ExitCode:1"), end(100, "Lost", lost=True)], "ExitCode:1", 0),
    ],
)
def test_the_end_of_the_whole_is_told_by_one_of_its_nodes(
    ends: list[dict[str, Any]], reason: str, node: int
) -> None:
    whole = outcome.combine_ends(ends)
    assert (whole["reason"], whole.get("node", 0)) == (reason, node)
    assert whole["infra"] is (reason == "NodeLost")
