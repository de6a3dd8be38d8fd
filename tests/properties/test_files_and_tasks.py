"""A folder, edited as people do, and the tasks of `tasks.fromFiles`: after any sequence of edits
the recorded results are those of the files as they are, each content ran as often as a model says
and no more, and every run got the content that its apply has seen, also where the controller was
killed.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.apply.request import ApplyOptions
from fleetctl.apply.write import commit
from fleetctl.controllers.status_keys import INDEXES
from fleetctl.manifest import Document, load_manifests
from fleetctl.specs.blocks.file_tasks import suffix_of
from fleetctl.tracking.manifest_sources import ManifestSources
from fleetctl.views.tasks import FileNames
from tests.unit.engine.fake_world import Fleet

Folder = Mapping[str, str]  # path below `in` -> content
PATHS = ("a.txt", "b.txt", "sub/a.txt", "sub/deep/c.md", "with space.txt", "é.md")
CONTENTS = ("one", "two", "three")
paths, contents = st.sampled_from(PATHS), st.sampled_from(CONTENTS)


@dataclass(frozen=True)
class Job:
    """What a person has written, and the folder beside it."""

    folder: Folder = field(default_factory=lambda: {"a.txt": "one", "b.txt": "two"})
    names: bool = False
    chunk: int = 0

    @property
    def tasks(self) -> list[Hashable]:
        """All that the program of each task is given, in their order."""
        seen = [
            (path if self.names else suffix_of(path), self.folder[path])
            for path in sorted(self.folder)
        ]
        if not self.chunk:
            return list(seen)
        return [tuple(seen[at : at + self.chunk]) for at in range(0, len(seen), self.chunk)]

    def manifest(self) -> str:
        chunk = f", chunk: {self.chunk}" if self.chunk else ""
        names = ", names: true" if self.names else ""
        return (
            "kind: BatchJob\nname: files\nparallelism: 3\nscript: work\n"
            f'tasks: {{fromFiles: {{glob: "in/**/*"{chunk}{names}}}}}\n'
        )


def _add(job: Job, path: str, content: str) -> Job:
    return replace(job, folder={**job.folder, path: content})


def _remove(job: Job, path: str, _: str) -> Job:
    rest = {key: it for key, it in job.folder.items() if key != path}
    return replace(job, folder=rest or job.folder)


def _move(job: Job, path: str, target: str) -> Job:
    if path not in job.folder:
        return job
    rest = {key: it for key, it in job.folder.items() if key != path}
    return replace(job, folder={**rest, target: job.folder[path]})


def _copy(job: Job, path: str, target: str) -> Job:
    return _add(job, target, job.folder[path]) if path in job.folder else job


EDITS: Mapping[str, Callable[[Job, str, str], Job]] = {
    "add": _add,
    "remove": _remove,
    "move": _move,
    "copy": _copy,
    "names": lambda job, *_: replace(job, names=not job.names),
    "chunk": lambda job, path, _: replace(job, chunk=PATHS.index(path) % 3),
}
edit = st.one_of(
    st.tuples(st.just("add"), paths, contents),  # also an edit of what is there
    st.tuples(st.just("remove"), paths, contents),
    st.tuples(st.sampled_from(["move", "copy"]), paths, paths),
    st.tuples(st.sampled_from(["names", "chunk", "kill"]), paths, contents),
)


class World:
    """The folder on a disk, and a fleet that runs its tasks."""

    def __init__(self, place: Path, fleet: Fleet) -> None:
        self._place, self._fleet = place, fleet
        self._sources = ManifestSources(place / "home")

    async def apply(self, job: Job, *, kills: bool) -> int:
        """How many tasks ran until nothing was left to do. kills: of the controller, meanwhile."""
        fleet, began = self._fleet, len(self._fleet.local.orders)
        fleet.engine.state.sources = self._sources
        self._lay(job.folder)
        document = Document("job.yaml", job.manifest(), str(self._place))
        manifests = load_manifests([document])
        looked = self._sources.keep(manifests, await self._sources.look(manifests))
        order = ApplyOptions(looked=looked, sources=self._sources)
        commit.apply_manifests(fleet.store, manifests, fleet.clock.now_s(), order)
        # Runs get what the apply has seen, whatever is edited from now on.
        self._lay(dict.fromkeys(job.folder, "edited after the apply"))
        await self._settle(kills=kills)
        return len(fleet.local.orders) - began

    def _lay(self, folder: Folder) -> None:
        shutil.rmtree(self._place / "in", ignore_errors=True)
        for path, content in folder.items():
            file = self._place / "in" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)

    async def _settle(self, *, kills: bool) -> None:
        fleet = self._fleet
        await fleet.settle()
        while working := fleet.local.working():
            if kills:
                await fleet.crash()
                fleet.engine.state.sources = self._sources
                await fleet.settle()
            fleet.clock.time_s += 1
            for index in working:
                files = fleet.local.orders[fleet.local.run(index)].files
                made = [(it.name, it.path.read_text()) for it in files]
                fleet.local.finish(index, result=json.dumps({"made": made}))
            await fleet.settle()

    def recorded(self, job: Job) -> list[tuple[str, str]]:
        """(the names that screens show, what the program was given) of each desired task."""
        row = self._fleet.row("files")
        newest = {run.index: (run, result) for run, result in self._fleet.store.runs.of(row.uid)}
        text = str(self._fleet.status("files").get("taskIndexes", ""))
        spans = [part.split("-") for part in text.split(",") if part]
        indexes = [at for pair in spans for at in range(int(pair[0]), int(pair[-1]) + 1)]
        files = json.loads(row.spec)["tasks"]["files"]
        known = FileNames(files, row.annotations.get(INDEXES, ""))
        found = []
        for index in indexes or range(len(job.tasks)):
            run, result = newest[index]
            assert run.state.value == "Succeeded"
            shown = json.loads(known.name_params(index, run.params))
            found.append((_joined(shown), json.loads(result or "{}")["made"]))
        return found


def _joined(params: Mapping[str, object]) -> str:
    named = params.get("file", params.get("files"))
    return named if isinstance(named, str) else "|".join(named)  # type: ignore[arg-type]


def expected(job: Job) -> list[tuple[str, object]]:
    size, order = job.chunk or 1, sorted(job.folder)
    found = []
    for at in range(0, len(order), size):
        mine = order[at : at + size]
        shown = [
            it if job.names else f"{'file' if not job.chunk else n + 1}{suffix_of(it)}"
            for n, it in enumerate(mine)
        ]
        given = [[name, job.folder[it]] for name, it in zip(shown, mine, strict=True)]
        found.append(("|".join(f"in/{it}" for it in mine), given))
    return found


async def live(place: Path, changes: list[tuple[str, str, str]]) -> None:
    async with Fleet() as fleet:
        world, job, known = World(place, fleet), Job(), Counter[Hashable]()
        for name, *given in [("names", "", ""), ("names", "", ""), *changes]:
            if name != "kill":
                job = EDITS[name](job, *given)
            else:
                job = _add(job, "killed.txt", f"{len(known)} of {given[0]}")
            wanted = Counter(job.tasks)
            ran = await world.apply(job, kills=name == "kill")
            assert ran == (wanted - known).total(), f"{name} {given}"
            known |= wanted
            assert sorted(world.recorded(job)) == sorted(expected(job)), f"{name} {given}"
            status = fleet.status("files")
            assert (status["phase"], status["outdated"]) == ("Succeeded", 0)


@settings(max_examples=60, deadline=None)
@given(st.lists(edit, min_size=1, max_size=8))
def test_each_content_runs_once_and_results_are_those_of_the_files(
    changes: list[tuple[str, str, str]],
) -> None:
    with TemporaryDirectory() as place:
        asyncio.run(live(Path(place), changes))
