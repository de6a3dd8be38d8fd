"""Repositories as sources of objects: what of a push runs again, what is said before anything is
stored, and what runs find. By real git.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetctl.apply.change import Change
from fleetctl.apply.propose import propose
from fleetctl.apply.request.options import Order
from fleetctl.apply.write import commit as writing
from fleetctl.common.errors import UsageError
from fleetctl.manifest import load
from fleetctl.manifest.files.documents import Document
from fleetctl.tracking.annotations import COPY, REVISION
from fleetctl.tracking.looked import Looked
from fleetctl.tracking.sources import Sources
from tests.unit.engine.fake_world import Fleet
from tests.unit.providers.test_git_names import with_pointer
from tests.unit.providers.test_gitsource import Repository

JOB = """\
apiVersion: fleetctl.dev/v1alpha1
kind: BatchJob
metadata: {{name: job}}
spec:
  tasks: {{items: [{{a: 1}}]}}
  template: {{source: {{git: {{url: "{url}", {more}}}}}, script: sh run.sh}}
"""


class Pushed:
    """A repository, and what applies of a manifest that names it come to."""

    def __init__(self, place: Path, more: str = "ref: main, path: jobs") -> None:
        self.repository = Repository(place / "origin")
        (self.repository.path / "jobs").mkdir()
        self.repository.commit("jobs/run.sh", "echo 1")
        self.more = more
        self.sources = Sources(place)

    async def looked(self) -> Looked:
        text = JOB.format(url=self.repository.url, more=self.more)
        self.manifests = load([Document("job.yaml", text, "/nowhere")])
        return (await self.sources.look(self.manifests))["batchjob/job"]

    async def order(self) -> Order:
        return Order(looked={"batchjob/job": await self.looked()}, sources=self.sources)

    async def apply(self, fleet: Fleet) -> Change:
        order = await self.order()
        [change] = propose(fleet.store, self.manifests, order, 0.0)
        writing.apply(fleet.store, self.manifests, fleet.clock.now_s(), order)
        await fleet.settle()
        return change


async def done(fleet: Fleet) -> None:
    fleet.local.finish(0)
    await fleet.settle()


async def test_a_commit_outside_of_the_path_runs_nothing_again(tmp_path: Path) -> None:
    pushed = Pushed(tmp_path)
    async with Fleet() as fleet:
        fleet.engine.state.sources = pushed.sources
        first = await pushed.apply(fleet)
        await done(fleet)
        commit = first.after.annotations[COPY]
        assert first.after.annotations[REVISION].startswith("tree:")
        [run] = fleet.runs("job")
        order = fleet.local.orders[run.name]
        assert order.template.source is not None and order.template.source.git is not None
        assert (order.template.source.git.ref, order.template.source.git.path) == (commit, "jobs")
        assert order.variables["FLEETCTL_SOURCE_COMMIT"] == commit
        pushed.repository.commit("README.md", "words")
        assert (await pushed.apply(fleet)).outcome == "unchanged"
        pushed.repository.commit("jobs/run.sh", "echo 2")
        change = await pushed.apply(fleet)
        assert change.impact is not None and change.impact.again.units == 1
        assert "source " in change.message
        await done(fleet)
        # An undo of the push is the same directory at another commit: its result is known.
        pushed.repository.commit("jobs/run.sh", "echo 1")
        change = await pushed.apply(fleet)
        assert change.impact is not None and (change.impact.cached, change.impact.to_run) == (1, 0)


async def test_without_a_path_a_commit_is_another_source(tmp_path: Path) -> None:
    pushed = Pushed(tmp_path, "ref: main")
    async with Fleet() as fleet:
        first = await pushed.apply(fleet)
        assert first.after.annotations[REVISION] == pushed.repository.git("rev-parse", "HEAD")
        assert COPY not in first.after.annotations
        pushed.repository.commit("README.md", "words")
        assert (await pushed.apply(fleet)).outcome == "configured"


async def test_a_short_commit_is_whole_before_it_is_stored(tmp_path: Path) -> None:
    pushed = Pushed(tmp_path)
    first = pushed.repository.git("rev-parse", "HEAD")
    pushed.repository.commit("jobs/run.sh", "echo 2")
    pushed.more = f'ref: "{first[:8]}"'
    assert (await pushed.looked()).revision == first
    pushed.more = 'ref: "0123456789"'
    with pytest.raises(UsageError, match="no commit begins with it"):
        await pushed.looked()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("ref: main", ["2 files are kept by Git LFS", "jobs/model.bin, model.bin"]),
        ("ref: main, path: jobs", ["1 file is kept by Git LFS", "jobs/model.bin"]),
        ("ref: main, lfs: true", []),
        ("ref: v1", ["is a tag and a branch there", "Git LFS"]),
    ],
)
async def test_what_tasks_would_not_get_is_said(tmp_path: Path, more: str, said: list[str]) -> None:
    pushed = Pushed(tmp_path, more)
    (pushed.repository.path / "jobs" / "run.sh").unlink()
    pushed.repository.git("rm", "-q", "--cached", "jobs/run.sh")
    pushed.repository.git("branch", "v1")
    (pushed.repository.path / "jobs").rmdir()
    with_pointer(pushed.repository)
    pushed.repository.git("tag", "v1")
    warnings = " ".join((await pushed.looked()).warnings)
    assert all(it in warnings for it in said) and bool(warnings) == bool(said)


async def test_a_path_that_is_not_there_is_refused_with_its_place(tmp_path: Path) -> None:
    pushed = Pushed(tmp_path, "ref: main, path: nope")
    with pytest.raises(UsageError, match=r"job\.yaml:1: .*source\.git\.path `nope`"):
        await pushed.looked()
