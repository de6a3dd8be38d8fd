"""What provider `kubernetes` says and does is true, whatever a cluster loses and tells late, and
planted bugs are caught.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from fleetctl.kubernetes.answers import ApiError
from fleetctl.providers.kubernetes.runs.job_informers import JobEnds, JobInformers
from fleetctl.providers.kubernetes.runs.job_sandboxes import JobSandboxes
from tests.simulation.planted.plant import around, swapped
from tests.simulation.pods.life import live

SEEDS = range(20)
SEEDS_MAX = 300  # of a planted bug, until the first that shows it


def test_what_is_said_of_pods_is_true_and_what_is_ended_is_gone() -> None:
    begun = 0
    for seed in SEEDS:
        life = live(seed)
        assert life.violations() == [], seed
        begun += life.server.begun.total()
    assert begun > 3 * len(SEEDS)


@contextmanager
def a_missing_watch_event_is_a_death() -> Iterator[None]:
    """What the watches do not show is not asked for by its name."""

    async def shown(self: JobSandboxes, _link: Any, plural: str, name: str) -> Any:
        cluster = await self.cluster()
        known = cluster._informers[plural == "pods"].objects
        return next((it for (_, each), it in known.items() if each == name), None)

    with swapped(JobSandboxes, "_look", shown):
        yield


@contextmanager
def a_stale_list_says_that_nothing_is_to_be_ended() -> Iterator[None]:
    def make(end: Callable[..., Any]) -> Callable[..., Any]:
        async def hasty(self: JobEnds, cluster: JobInformers, job: str, pod: str = "") -> None:
            if cluster.job(job) is not None:
                await end(self, cluster, job, pod)

        return hasty

    with around(JobEnds, "end", make):
        yield


@contextmanager
def a_job_that_is_gone_has_no_pod() -> Iterator[None]:
    """Found here first: a delete whose reply was lost was asked for again, and answered by 404."""

    def make(end: Callable[..., Any]) -> Callable[..., Any]:
        async def hasty(self: JobEnds, cluster: JobInformers, job: str, pod: str = "") -> None:
            try:
                await cluster.link.get("jobs", job)
            except ApiError:
                return
            await end(self, cluster, job, pod)

        return hasty

    with around(JobEnds, "end", make):
        yield


@contextmanager
def what_a_list_does_not_have_is_gone() -> Iterator[None]:
    with swapped(JobInformers, "is_told_gone", lambda self, pod: self.last(pod) is not None):
        yield


@pytest.mark.parametrize(
    ("plant", "seen"),  # a seed that showed it, to begin with
    [
        (a_missing_watch_event_is_a_death, 69),
        (a_stale_list_says_that_nothing_is_to_be_ended, 3),
        (a_job_that_is_gone_has_no_pod, 1),
        (what_a_list_does_not_have_is_gone, 7),
    ],
)
def test_a_planted_bug_of_the_provider_is_caught(
    plant: Callable[[], AbstractContextManager[None]], seen: int
) -> None:
    with plant():
        assert any(live(seed).server.wrong for seed in (seen, *range(SEEDS_MAX)))


def test_two_leaders_that_both_write_are_caught() -> None:
    """Without the store's fence the one that led before takes back what the other one recorded."""
    assert any(live(seed, fenced=False).server.wrong for seed in range(SEEDS_MAX))
