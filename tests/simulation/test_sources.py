"""Random histories of a repository against a model: pushes, also while it is asked, force-pushes,
branches that go, commits that are wrong or cannot be fetched whole, edits by hand, crashes, writes
that fail. At every moment the objects equal one whole commit, the one that the status names, and
foreign objects stay. A request for a look is answered with a commit that existed at the call or
later. When changes and faults stop, the objects equal the newest commit.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest

from fleetctl.apply import propose
from fleetctl.apply.write import commit as writing
from fleetctl.engine.kinds.source_pass import SourceMembers
from fleetctl.engine.kinds.source_status import SourceWork
from fleetctl.gitops import git_keeper
from fleetctl.manifest import Manifest, ManifestErrors
from fleetctl.tracking.kept_by import KEPT_BY
from tests.simulation.planted.plant import around, swapped
from tests.unit.engine import fake_remote
from tests.unit.engine.fake_remote import Remote, RemoteKeeper, Tree, job
from tests.unit.engine.fake_world import Fleet, tasks

SEEDS = int(os.environ.get("FLEETCTL_HISTORIES", "12"))
SEEDS_OF_A_PLANT = 200
STEPS = 14
LOOKS_MAX = 10_000  # turns until a request by hand is answered
NAMES = "abcdefgh"
SPACES = ("default", "team")

# (namespace, name) -> completions
Wanted = dict[tuple[str, str], int]


@dataclass(slots=True)
class Life:
    """models: commit -> what it says; None of one that is wrong. touched: changed by hand since the
    last look. broken: what is not as it must be.
    """

    world: Fleet
    remote: Remote
    rng: random.Random
    waits: bool
    models: dict[str, Wanted | None] = field(default_factory=dict)
    touched: set[tuple[str, str]] = field(default_factory=set)
    broken: list[str] = field(default_factory=list)
    requests: int = 0
    moves: bool = False

    async def live(self) -> None:
        await self.world.apply("BatchJob", "mine", tasks(1))
        self._push()
        spec: dict[str, Any] = {"git": {"url": "https://example.org/x.git"}, "prune": True}
        spec |= {"maxPrune": "100%", "onDisruption": "Wait" if self.waits else "Replace"}
        await self.world.apply("Source", "fleet", spec)
        self.remote.meanwhile = self._move
        self.moves = self.rng.random() < 0.4  # the repository of some never stands still
        for _ in range(STEPS):
            await self.rng.choice(self._acts())()
            self._look()
        await self._come_to_rest()

    def _acts(self) -> tuple[Callable[[], Awaitable[None]], ...]:
        acts = (self._change, self._change, self._time, self._time, self._crash, self._fail_writes)
        odd = (self._away, self._lose, self._branch_goes, self._end_work, self._reconcile)
        by_hand = () if self.waits else (self._edit, self._delete)
        return (*acts, *odd, *by_hand)

    async def _change(self) -> None:
        self._push()
        await self._time()

    def _push(self) -> None:
        tree, wanted = _drawn(self.rng)
        commit = self.remote.push(tree)
        self.models[commit] = wanted

    def _move(self) -> None:
        """The repository is pushed to while it is asked."""
        if self.moves and self.rng.random() < 0.2 and "main" in self.remote.branches:
            self._push()

    async def _reconcile(self) -> None:
        """Requests the newest commit, and reads the reply from the status."""
        self.requests += 1
        request, known = f"request-{self.requests}", list(self.models)
        tip = known.index(self.remote.branches["main"])
        writing.request_reconcile(self.world.store, "fleet", request, approved=False)
        for _ in range(LOOKS_MAX):
            # In small steps: a status that lasts for a moment is a reply, too.
            self.world.clock.time_s += 0.1
            self.world.engine.ticks.make()
            for _ in range(3):
                await asyncio.sleep(0)
            if self.world.status("fleet")["request"] == request:
                self._judge_answer(tip)
                return
        self.broken.append(f"{request} is not answered")

    def _judge_answer(self, tip: int) -> None:
        """tip: the number of the commit that was the newest at the call."""
        status = self.world.status("fleet")
        attempted, error = status["attemptedRevision"], status["lastError"]
        if status["reason"] == "SourceUnreachable":
            return  # it says that it could not look
        if list(self.models).index(attempted) < tip:
            self.broken.append(f"answered by {attempted}, which was an older one at the call")
        elif (self.models[attempted] is None) != bool(error):
            self.broken.append(f"answered of {attempted}: {error or 'no error'}")

    async def _time(self) -> None:
        await self.world.later(self.rng.choice((1.0, 61.0, 400.0)))
        if not self._differs():
            self.touched.clear()

    async def _crash(self) -> None:
        if self.rng.random() < 0.5:
            self._push()
            self.world.clock.time_s += 61.0
            for _ in range(self.rng.randrange(6)):
                self.world.engine.ticks.make()
                await asyncio.sleep(0)
        await self.world.crash()
        await self.world.settle()

    async def _fail_writes(self) -> None:
        self._push()
        self.world.fail_commits = self.rng.choice((1, 3, 9))
        await self.world.later(61.0)
        self.world.fail_commits = 0
        await self.world.later(61.0)

    async def _away(self) -> None:
        self.remote.away = not self.remote.away
        await self._time()

    async def _lose(self) -> None:
        self._push()
        self.remote.lost.add(self.remote.branches["main"])
        await self._time()

    async def _branch_goes(self) -> None:
        branch = self.remote.branches.pop("main")
        await self._time()
        self.remote.branches["main"] = branch

    async def _end_work(self) -> None:
        for box in list(self.world.local.boxes.values()):
            if box.working:
                order = self.world.local.orders[box.working]
                self.world.local.finish(order.index, of=order.resource)
        await self.world.settle()

    def _kept(self) -> list[Any]:
        rows = self.world.store.resources.list()
        return [it for it in rows if KEPT_BY in it.annotations and it.deleted_at_s is None]

    async def _edit(self) -> None:
        rows = self._kept()
        if rows:
            row = self.rng.choice(rows)
            self.touched.add((row.namespace, row.name))
            spec = {**json.loads(row.spec), "completions": 99}
            edited = replace(row, spec=json.dumps(spec), generation=row.generation + 1)
            with self.world.store.transaction():
                self.world.store.resources.put(edited, expected_version=row.version)
            await self.world.settle()

    async def _delete(self) -> None:
        rows = self._kept()
        if rows:
            row = self.rng.choice(rows)
            self.touched.add((row.namespace, row.name))
            await self.world.delete("BatchJob", row.name, namespace=row.namespace)

    # -- what must hold ------------------------------------------------------------------------

    def _there(self) -> Wanted:
        rows = self._kept()
        return {(it.namespace, it.name): json.loads(it.spec).get("completions", 1) for it in rows}

    def _differs(self) -> list[str]:
        """How the objects differ from the commit that the status names."""
        applied = self.world.status("fleet").get("appliedRevision") or ""
        wanted = self.models.get(applied) or {}
        there = self._there()
        keys = {it for it in (*wanted, *there) if wanted.get(it) != there.get(it)}
        return [f"{it}: {there.get(it)}, not {wanted.get(it)}" for it in sorted(keys)]

    def _look(self) -> None:
        applied = self.world.status("fleet").get("appliedRevision") or ""
        if applied and self.models[applied] is None:
            self.broken.append(f"{applied} is wrong, and was applied")
        untouched = [
            it for it in self._differs() if not any(str(key) in it for key in self.touched)
        ]
        self.broken += untouched
        if "mine" not in self.world.names():
            self.broken.append("what is nobody's was pruned")
        if self.waits and self.world.local.stops:
            self.broken.append("running work was ended without consent")

    async def _come_to_rest(self) -> None:
        self.remote.meanwhile = lambda: None
        self.remote.away = False
        self.remote.lost.clear()
        if self.waits:
            await self._end_work()
        for _ in range(4):
            await self.world.later(400.0)
            await self._end_work()
        self._look()
        tip = self.remote.branches["main"]
        status = self.world.status("fleet")
        if self.models[tip] is None:
            # Nothing is repaired either: what it was repaired to would be of no commit.
            if not status["lastError"] or status["phase"] == "Ready":
                self.broken.append("nobody says that the newest commit is wrong")
        elif status["appliedRevision"] == tip:
            self.broken += self._differs()
            if status["drift"] or status["phase"] != "Ready":
                self.broken.append(f"it is {status['phase']}, drift {status['drift']}")
        elif status["reason"] != "NeedsConsent":
            self.broken.append(f"{tip} is not applied: {status['reason']} {status['message']}")


def _drawn(rng: random.Random) -> tuple[Tree, Wanted | None]:
    """A tree, and what it says; None where one of its files is wrong."""
    wanted: Wanted = {}
    for name in rng.sample(NAMES, rng.randrange(1, len(NAMES))):
        wanted[rng.choice(SPACES), name] = rng.randrange(1, 4)
    tree = {}
    for (space, name), count in wanted.items():
        folder = rng.choice(("", "x/", "y/"))
        tree[f"{folder}{name}.yaml"] = job(name, namespace=space, completions=count)
    if rng.random() < 0.2:
        tree["zz.yaml"] = job("zz", parallelism=-1)
        return tree, None
    return tree, wanted


def wrong(seed: int) -> list[str]:
    """What is not as it should be in one life."""

    async def play() -> list[str]:
        rng, remote = random.Random(f"source {seed}"), Remote()
        async with Fleet(keeper=partial(RemoteKeeper, remote=remote)) as world:
            life = Life(world, remote, rng, waits=rng.random() < 0.3)
            await life.live()
            return life.broken

    return asyncio.run(play())


def test_objects_are_those_of_one_whole_commit_and_of_the_newest_in_the_end() -> None:
    assert [(seed, found) for seed in range(SEEDS) if (found := wrong(seed))] == []


Plant = AbstractContextManager[object]


def what_is_half_fetched_is_applied() -> Plant:
    """A fetch that breaks off leaves some files, and the others are taken for removed."""

    def fetch(self: Remote, commit: str) -> Tree:
        tree = self.trees[commit]
        keep = sorted(tree)[: (len(tree) + 1) // 2] if commit in self.lost else sorted(tree)
        return {name: tree[name] for name in keep}

    return swapped(Remote, "fetch", fetch)


def what_can_be_loaded_is_applied() -> Plant:
    """A file that is wrong is left out."""

    def make(original: Callable[..., list[Manifest]]) -> Callable[..., list[Manifest]]:
        def patched(documents: Any, namespace: Any) -> list[Manifest]:
            try:
                return original(documents, namespace)
            except ManifestErrors as error:
                bad = {it.file for it in error.problems}
                return original([it for it in documents if it.path not in bad], namespace)

        return patched

    return around(fake_remote, "load_manifests", make)


def half_of_a_commit_is_stored() -> Plant:
    def make(original: Callable[..., None]) -> Callable[..., None]:
        return lambda store, changes, now_s: original(store, changes[len(changes) // 3 :], now_s)

    return around(git_keeper, "write_changes", make)


def what_is_nobodys_is_pruned() -> Plant:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def patched(stored: Any, applyset: str, kept: Any, pruning: Any, within: Any) -> Any:
            found = original(stored, applyset, kept, pruning, within)
            free = (it for it in stored.resources.list() if it.kind == "BatchJob")
            return [*found, *(it for it in free if not it.labels and it.deleted_at_s is None)]

        return patched

    return around(propose, "find_pruned", make)


def only_namespaces_in_use_are_pruned() -> Plant:
    """The last object of a namespace moves away, and stays."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def patched(stored: Any, applyset: str, kept: Any, pruning: Any, within: Any) -> Any:
            return original(stored, applyset, kept, pruning, ("default",))

        return patched

    return around(propose, "find_pruned", make)


def edits_by_hand_are_not_seen() -> Plant:
    return swapped(SourceMembers, "changed", lambda _self, _source: [])


def a_refusal_of_the_round_before_answers() -> Plant:
    """A request after a refused commit gets its old error before the newest commit is read."""
    return swapped(SourceWork, "over_with_error", property(lambda self: self.error is not None))


def consent_is_taken_for_granted() -> Plant:
    return swapped(git_keeper, "_list_losses", lambda *_: iter(()))


@pytest.mark.parametrize(
    ("plant", "seen"),  # a seed that showed it, to begin with
    [
        (what_is_half_fetched_is_applied, 5),
        (what_can_be_loaded_is_applied, 2),
        (half_of_a_commit_is_stored, 0),
        (what_is_nobodys_is_pruned, 0),
        (only_namespaces_in_use_are_pruned, 0),
        (edits_by_hand_are_not_seen, 44),
        (a_refusal_of_the_round_before_answers, 40),
        (consent_is_taken_for_granted, 1),
    ],
)
def test_planted_bugs_are_seen(plant: Callable[[], Plant], seen: int) -> None:
    with plant():
        assert any(wrong(seed) for seed in (seen, *range(SEEDS_OF_A_PLANT)))
