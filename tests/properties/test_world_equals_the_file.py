"""Edit, apply, and the world equals the file: after any sequence of edits the recorded results of
the desired tasks are what a fresh store would compute for the file as it is, and a task ran as
often as a model says and no more: rows that move keep their work, whatever the cache policy; own
results come back; those of other objects only where the file asks for them.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.apply.deletion import PruneLimit
from fleetctl.apply.request import ApplyOptions
from fleetctl.apply.write import commit
from fleetctl.apply.write.requeue import RetryChoice, requeue_units
from fleetctl.manifest import Manifest
from fleetctl.providers.contract.base import RunRequest
from fleetctl.specs.blocks.common import Metadata
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.tracking.manifest_sources import ManifestSources
from tests.unit.engine.fake_world import Fleet

Content = tuple[object, ...]
Rows = tuple[int, ...]


@dataclass(frozen=True)
class File:
    """What a person has written, and what lies beside it. source: of a file in its directory."""

    name: str = "a"
    items: Rows = (1, 2)
    program: str = "one"
    pip: str = "numpy"
    source: str = "x = 1"
    variable: str = "a"
    memory: str = "1Gi"
    timeout: int = 60
    parallelism: int = 2
    label: str = "red"
    policy: str = "Own"
    volume: bool = False

    @property
    def work(self) -> Content:
        """All that can change what comes of a task, its item aside."""
        return (self.program, self.pip, self.source, self.variable, self.volume)

    @property
    def reuses(self) -> bool:
        """What is on a volume can change, so that its results are reused where that is stated."""
        return self.policy == "ReuseSucceeded" or (self.policy == "Own" and not self.volume)

    def spec(self) -> dict[str, Any]:
        template = {
            "python": self.program,
            "image": {"pip": [self.pip]},
            "source": {"path": "src"},
            "env": {"V": self.variable},
            "resources": {"memory": self.memory},
            "timeoutSeconds": self.timeout,
            "volumes": [{"name": "v", "mountPath": "/v"}] if self.volume else [],
        }
        return {
            "template": template,
            "tasks": {"items": [{"x": x} for x in self.items]},
            "parallelism": self.parallelism,
            "cache": {"policy": self.policy},
        }


FIELDS: Mapping[str, st.SearchStrategy[Any]] = {
    "name": st.sampled_from(["a", "b"]),
    "program": st.sampled_from(["one", "two"]),
    "pip": st.sampled_from(["numpy", "scipy"]),
    "source": st.sampled_from(["x = 1", "x = 2"]),
    "variable": st.sampled_from(["a", "b"]),
    "memory": st.sampled_from(["1Gi", "2Gi"]),
    "timeout": st.sampled_from([60, 90]),
    "parallelism": st.sampled_from([1, 2, 5]),
    "label": st.sampled_from(["red", "blue"]),
    "policy": st.sampled_from(["Own", "ReuseSucceeded", "Never"]),
    "volume": st.booleans(),
}
places = st.integers(0, 5)
# How a person edits rows; the numbers are places in the file, or what an item has.
ROWS: Mapping[str, Callable[[Rows, int, int], Rows]] = {
    "insert": lambda rows, at, x: (*rows[: at % len(rows)], x % 4, *rows[at % len(rows) :]),
    "remove": lambda rows, at, _: _without(rows, at) or rows,
    "move": lambda rows, at, to: _moved(rows, at, to),
    "repeat": lambda rows, at, _: (*rows, rows[at % len(rows)]),
    "replace": lambda rows, at, x: (
        *rows[: at % len(rows)],
        x % 4,
        *rows[at % len(rows) + 1 :],
    ),
}
edit = st.one_of(
    *(st.tuples(st.just(name), values) for name, values in FIELDS.items()),
    *(st.tuples(st.just(name), st.tuples(places, places)) for name in ROWS),
    st.tuples(st.sampled_from(["insert", "remove", "move"]), st.tuples(places, places)),
    st.tuples(st.just("rename"), st.none()),
    st.tuples(st.just("rerun"), st.none()),
    st.tuples(st.just("undo"), st.integers(1, 4)),
)


def _without(rows: Rows, at: int) -> Rows:
    return (*rows[: at % len(rows)], *rows[at % len(rows) + 1 :])


def _moved(rows: Rows, at: int, to: int) -> Rows:
    rest = _without(rows, at)
    return (*rest[:to], rows[at % len(rows)], *rest[to:])


Key = tuple[Content, int, int]  # work, item, and the number of the row among equal ones


@dataclass
class Slot:
    """The newest attempt of an index. entry: what it left for reuse, if anything."""

    x: int
    work: Content
    entry: Key | None
    aside: bool = False


@dataclass
class Thing:
    """One object. known: what it may take as its own, and when that was made."""

    slots: dict[int, Slot] = field(default_factory=dict)
    wanted: dict[int, int] = field(default_factory=dict)  # index -> item
    work: Content = ()
    known: dict[Key, int] = field(default_factory=dict)
    anew_since: int = -1
    spec: File | None = None


def spec_of(file: File) -> File:
    """Returns the file reduced to the fields that its spec depends on."""
    return replace(file, name="", label="red", source="")


class Model:
    def __init__(self) -> None:
        self.things: dict[str, Thing] = {}
        self._moments = count()

    def apply(self, file: File) -> int:
        """How many tasks have to run."""
        thing = self.things.setdefault(file.name, Thing())
        thing.wanted, thing.spec = self._wanted(thing, file), spec_of(file)
        if thing.work != file.work:
            thing.work, thing.anew_since = file.work, -1
        return self._settle(thing, file)

    def rename(self, file: File, name: str) -> int:
        """Removes all objects but the one with the most work that still counts. This one continues
        under the new name, with the results that the others left.
        """
        newest = list(self.things.values())[::-1]
        newest.sort(key=lambda it: it.spec != spec_of(file))
        heir = max(newest, key=lambda it: self._counting(it, file))
        if not self._counting(heir, file):
            heir = Thing()
        for thing in self.things.values():
            for entry, moment in thing.known.items():
                heir.known[entry] = max(moment, heir.known.get(entry, moment))
        self.things = {name: heir}
        return self.apply(replace(file, name=name))

    def _counting(self, thing: Thing, file: File) -> int:
        """How many of its rows are done with."""
        if thing.work != file.work:
            return 0
        done = Counter(it.x for it in thing.slots.values() if it.work == file.work and not it.aside)
        return (done & Counter(file.items)).total()

    def rerun(self, file: File) -> int:
        thing = self.things[file.name]
        thing.anew_since = next(self._moments)
        for slot in thing.slots.values():
            slot.aside = True
            if slot.entry is not None:
                thing.known.pop(slot.entry, None)
        return self._settle(thing, file)

    def _settle(self, thing: Thing, file: File) -> int:
        seen: Counter[int] = Counter()
        runs = 0
        made: dict[Key, int] = {}
        for index, x in thing.wanted.items():
            key, slot = (file.work, x, seen[x]), thing.slots.get(index)
            seen[x] += 1
            if slot is not None and (slot.x, slot.work, slot.aside) == (x, file.work, False):
                continue
            # One that is asked to run again does, whatever is known.
            asked = slot is not None and slot.aside and (slot.x, slot.work) == (x, file.work)
            if file.reuses and not asked and self._is_known(thing, key, file):
                thing.slots[index] = Slot(x, file.work, None)
                continue
            runs += 1
            thing.slots[index] = Slot(x, file.work, key if file.reuses else None)
            if file.reuses:
                made[key] = next(self._moments)
        thing.known |= made
        return runs

    def _is_known(self, thing: Thing, key: Key, file: File) -> bool:
        others = self.things.values() if file.policy == "ReuseSucceeded" else (thing,)
        return any(it.known.get(key, -2) > thing.anew_since for it in others)

    def _wanted(self, thing: Thing, file: File) -> dict[int, int]:
        """The index of each row, in their order."""
        if list(thing.wanted.values()) == list(file.items):
            return thing.wanted
        found: dict[int, int] = {}  # row -> index
        last = {
            at: slot.x
            for at, slot in sorted(
                thing.slots.items(), key=lambda it: (_worth(it[1], thing.work), it[0])
            )
        }
        for before in (dict(sorted(thing.wanted.items())), last):
            for x in set(file.items):
                rows = [at for at, it in enumerate(file.items) if it == x and at not in found]
                there = [at for at, it in before.items() if it == x and at not in found.values()]
                found |= dict(zip(rows, sorted(there[: len(rows)]), strict=False))
        for at in range(len(file.items)):
            if at not in found and at not in found.values():
                found[at] = at
        for at in range(len(file.items)):
            if at not in found:
                found[at] = next(it for it in count() if it not in found.values())
        return {found[at]: x for at, x in enumerate(file.items)}


def _worth(slot: Slot, work: Content) -> int:
    if slot.aside:
        return 3
    return 0 if slot.work == work else 2


class World:
    """A directory with the file's code, and a fleet that runs what it is told."""

    def __init__(self, place: Path, fleet: Fleet) -> None:
        self._code = place / "src" / "train.py"
        self._code.parent.mkdir()
        self._fleet = fleet
        self._sources = fleet.engine.state.sources = ManifestSources(place / "home")

    async def apply(self, file: File, *, pruning: PruneLimit | None = None) -> int:
        """As the controller applies it; how many tasks ran until nothing was left to do."""
        fleet, began = self._fleet, len(self._fleet.local.orders)
        self._code.write_text(file.source)
        about = Metadata.model_validate({"name": file.name, "labels": {"colour": file.label}})
        spec = KINDS["BatchJob"].spec.model_validate(file.spec())
        origin = str(self._code.parent)
        manifest = Manifest("BatchJob", file.name, about, spec, "job.yaml", 1, origin=origin)
        looked = await self._sources.look([manifest])
        looked = self._sources.keep([manifest], looked)
        order = ApplyOptions(
            looked=looked, sources=self._sources, applyset="files", pruning=pruning
        )
        commit.apply_manifests(fleet.store, [manifest], fleet.clock.now_s(), order)
        # Runs get what the apply has seen, whatever is edited from now on.
        self._code.write_text("edited after the apply")
        await self._settle()
        return len(fleet.local.orders) - began

    async def rerun(self, file: File) -> int:
        fleet, began = self._fleet, len(self._fleet.local.orders)
        fleet.clock.time_s += 1
        requeue_units(fleet.store, "BatchJob", file.name, RetryChoice("rerun"), fleet.clock.now_s())
        await self._settle()
        return len(fleet.local.orders) - began

    async def _settle(self) -> None:
        fleet = self._fleet
        await fleet.settle()
        while working := fleet.local.working():
            fleet.clock.time_s += 1
            for index in working:
                made = computed(fleet.local.orders[fleet.local.run(index)])
                fleet.local.finish(index, result=json.dumps({"made": made}))
            await fleet.settle()

    def recorded(self, file: File) -> list[object]:
        """The result that counts, of each desired task."""
        rows = self._fleet.store.runs.of(self._fleet.row(file.name).uid)
        newest = {run.index: (run, result) for run, result in rows}
        text = str(self._fleet.status(file.name).get("taskIndexes", ""))
        pairs = [part.split("-") for part in text.split(",") if part]
        indexes = [at for pair in pairs for at in range(int(pair[0]), int(pair[-1]) + 1)]
        wanted = [newest[at] for at in indexes or range(len(file.items))]
        assert all(run.state.value == "Succeeded" for run, _ in wanted)
        return sorted(json.loads(result or "{}")["made"] for _, result in wanted)


def computed(order: RunRequest) -> list[object]:
    """What a program would make of what it was given."""
    template = order.template
    assert template.image is not None and template.source is not None
    code = (Path(template.source.path or "") / "train.py").read_text()
    mounted = bool(template.volumes)
    x = order.params["x"]
    return [template.python, template.image.pip[0], code, template.env["V"], mounted, x]


class Story:
    """The file, the world and the model, edit by edit."""

    def __init__(self, world: World) -> None:
        self.world, self.model, self.file = world, Model(), File()
        self._files = [self.file]
        self._names = (f"renamed-{number}" for number in count())

    async def make(self, name: str, value: Any) -> tuple[int, int]:
        """(how many tasks ran, how many the model says)"""
        if name == "rerun":
            return await self.world.rerun(self.file), self.model.rerun(self.file)
        if name == "rename":
            self.file = replace(self.file, name=next(self._names))
            ran = await self.world.apply(self.file, pruning=PruneLimit(most=9))
            told = self.model.rename(self.file, self.file.name)
        else:
            self.file = self._edited(name, value)
            ran, told = await self.world.apply(self.file), self.model.apply(self.file)
        self._files.append(self.file)
        return ran, told

    def _edited(self, name: str, value: Any) -> File:
        if name in ROWS:
            return replace(self.file, items=ROWS[name](self.file.items, *value))
        if name == "undo":
            return replace(self._files[-1 - value % len(self._files)], name=self.file.name)
        return replace(self.file, **{name: value})


async def live(place: Path, changes: list[tuple[str, Any]]) -> None:
    async with Fleet() as fleet:
        story = Story(World(place, fleet))
        for name, value in [("name", "a"), *changes]:
            ran, told = await story.make(name, value)
            file = story.file
            assert ran == told, f"{name} = {value}"
            expected = sorted([*file.work, x] for x in file.items)
            assert story.world.recorded(file) == expected, f"{name} = {value}"
            status = fleet.status(file.name)
            assert (status["phase"], status["outdated"]) == ("Succeeded", 0)


@settings(max_examples=30, deadline=None)
@given(st.lists(edit, min_size=1, max_size=8))
def test_after_each_apply_the_results_are_those_of_the_file(
    changes: list[tuple[str, Any]],
) -> None:
    with TemporaryDirectory() as place:
        asyncio.run(live(Path(place), changes))
