"""Edit, apply, and the world equals the file: after any sequence of edits the recorded result of
each desired task is what a fresh store would compute for the file as it is, and no task ran whose
content had succeeded before. A model decides.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.apply.request.options import Order
from fleetctl.apply.write import commit
from fleetctl.manifest import Manifest
from fleetctl.providers.contract.base import RunRequest
from fleetctl.specs.blocks.common import Metadata
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.tracking.sources import Sources
from tests.unit.engine.fake_world import Fleet

Content = tuple[object, ...]


@dataclass(frozen=True)
class File:
    """What a person has written, and what lies beside it. source: of a file in its directory."""

    name: str = "a"
    items: tuple[int, ...] = (1, 2)
    program: str = "one"
    pip: str = "numpy"
    source: str = "x = 1"
    variable: str = "a"
    memory: str = "1Gi"
    timeout: int = 60
    parallelism: int = 2
    label: str = "red"

    def content(self, x: int) -> Content:
        """Of the task of an item: all that can change what comes of it."""
        return (self.program, self.pip, self.source, self.variable, x)

    def spec(self) -> dict[str, Any]:
        template = {
            "python": self.program,
            "image": {"pip": [self.pip]},
            "source": {"path": "src"},
            "env": {"V": self.variable},
            "resources": {"memory": self.memory},
            "timeoutSeconds": self.timeout,
        }
        items = [{"x": x} for x in self.items]
        return {"template": template, "tasks": {"items": items}, "parallelism": self.parallelism}


EDITS: Mapping[str, st.SearchStrategy[Any]] = {
    "name": st.sampled_from(["a", "b"]),
    "items": st.permutations(range(4)).flatmap(
        lambda order: st.integers(1, 4).map(lambda count: tuple(order[:count]))
    ),
    "program": st.sampled_from(["one", "two"]),
    "pip": st.sampled_from(["numpy", "scipy"]),
    "source": st.sampled_from(["x = 1", "x = 2"]),
    "variable": st.sampled_from(["a", "b"]),
    "memory": st.sampled_from(["1Gi", "2Gi"]),
    "timeout": st.sampled_from([60, 90]),
    "parallelism": st.sampled_from([1, 2, 5]),
    "label": st.sampled_from(["red", "blue"]),
}
edits = st.lists(
    st.one_of(*(st.tuples(st.just(name), values) for name, values in EDITS.items())),
    min_size=1,
    max_size=6,
)


@dataclass
class Model:
    """known: contents that have succeeded. held: what each object has of each of its tasks."""

    known: set[Content] = field(default_factory=set)
    held: dict[str, dict[int, Content]] = field(default_factory=dict)

    def apply(self, file: File) -> int:
        """How many tasks have to run."""
        before = self.held.get(file.name, {})
        desired_now = {index: file.content(x) for index, x in enumerate(file.items)}
        differ = {at: it for at, it in desired_now.items() if before.get(at) != it}
        runs = sum(it not in self.known for it in differ.values())
        self.known |= set(desired_now.values())
        self.held[file.name] = desired_now
        return runs


class World:
    """A directory with the file's code, and a fleet that runs what it is told."""

    def __init__(self, place: Path, fleet: Fleet) -> None:
        self._code = place / "src" / "train.py"
        self._code.parent.mkdir()
        self._fleet = fleet
        self._sources = fleet.engine.state.sources = Sources(place / "home")

    async def apply(self, file: File) -> int:
        """As the controller applies it; how many tasks ran until nothing was left to do."""
        fleet, began = self._fleet, len(self._fleet.local.orders)
        self._code.write_text(file.source)
        about = Metadata.model_validate({"name": file.name, "labels": {"colour": file.label}})
        spec = KINDS["BatchJob"].spec.model_validate(file.spec())
        origin = str(self._code.parent)
        manifest = Manifest("BatchJob", file.name, about, spec, "job.yaml", 1, origin=origin)
        looked = await self._sources.look([manifest])
        looked = self._sources.keep([manifest], looked)
        order = Order(looked=looked, sources=self._sources)
        commit.apply(fleet.store, [manifest], fleet.clock.now_s(), order)
        # Runs get what the apply has seen, whatever is edited from now on.
        self._code.write_text("edited after the apply")
        await fleet.settle()
        while working := fleet.local.working():
            fleet.clock.time_s += 1
            for index in working:
                made = computed(fleet.local.orders[fleet.local.run(index)])
                fleet.local.finish(index, result=json.dumps({"made": made}))
            await fleet.settle()
        return len(fleet.local.orders) - began

    def recorded(self, file: File) -> dict[int, object]:
        """The result that counts, of each desired task."""
        rows = self._fleet.store.runs.of(self._fleet.row(file.name).uid)
        newest = {run.index: (run, result) for run, result in rows}
        assert all(run.state.value == "Succeeded" for run, _ in newest.values())
        return {
            index: json.loads(newest[index][1] or "{}")["made"] for index in range(len(file.items))
        }


def computed(order: RunRequest) -> list[object]:
    """What a program would make of what it was given."""
    template = order.template
    assert template.image is not None and template.source is not None
    code = (Path(template.source.path or "") / "train.py").read_text()
    return [template.python, template.image.pip[0], code, template.env["V"], order.params["x"]]


async def live(place: Path, changes: list[tuple[str, Any]]) -> None:
    async with Fleet() as fleet:
        world, model, file = World(place, fleet), Model(), File()
        for name, value in [("name", "a"), *changes]:
            file = replace(file, **{name: value})
            wanted = model.apply(file)
            assert await world.apply(file) == wanted, f"{name} = {value}"
            expected = {at: list(file.content(x)) for at, x in enumerate(file.items)}
            assert world.recorded(file) == expected, f"{name} = {value}"
            status = fleet.status(file.name)
            assert (status["phase"], status["outdated"]) == ("Succeeded", 0)


@settings(max_examples=60, deadline=None)
@given(edits)
def test_after_each_apply_the_results_are_those_of_the_file(
    changes: list[tuple[str, Any]],
) -> None:
    with TemporaryDirectory() as place:
        asyncio.run(live(Path(place), changes))
