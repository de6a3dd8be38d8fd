"""Repositories as sources of objects: what of a push runs again, what is said before anything is
stored, and what runs find. By real git.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from fleetctl.apply.change import Change
from fleetctl.apply.predictions.predict import make_predictions, read_allowed, split_predictions
from fleetctl.apply.predictions.world import Prediction, world_of
from fleetctl.apply.propose import propose_changes
from fleetctl.apply.request import ApplyOptions
from fleetctl.apply.write import commit as writing
from fleetctl.common.errors import UsageError
from fleetctl.manifest import Manifest, load_manifests
from fleetctl.manifest.files.documents import Document
from fleetctl.tracking.annotations import COPY, REVISION
from fleetctl.tracking.manifest_sources import ManifestSources
from fleetctl.tracking.source_state import SourceState
from tests.unit.engine.fake_world import Fleet
from tests.unit.providers.test_git_names import POINTER, with_pointer
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
        self.place = "/nowhere"  # where the manifest lies
        self.sources = ManifestSources(place)

    async def looked(self, text: str = "") -> SourceState:
        text = text or JOB.format(url=self.repository.url, more=self.more)
        self.manifests = load_manifests([Document("job.yaml", text, self.place)])
        return (await self.sources.look(self.manifests))["batchjob/job"]

    async def order(self, text: str = "") -> ApplyOptions:
        return ApplyOptions(looked={"batchjob/job": await self.looked(text)}, sources=self.sources)

    async def apply(self, fleet: Fleet, text: str = "") -> Change:
        order = await self.order(text)
        [change] = propose_changes(fleet.store, self.manifests, order, 0.0)
        writing.apply_manifests(fleet.store, self.manifests, fleet.clock.now_s(), order)
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


async def test_a_manifest_is_no_content_of_its_own_repository(tmp_path: Path) -> None:
    """What an edit of it changes is told by the manifest itself."""
    pushed = Pushed(tmp_path, "ref: main")
    pushed.place = str(pushed.repository.path)
    whole = JOB.format(url=pushed.repository.url, more=pushed.more)
    pushed.repository.commit("job.yaml", whole)
    async with Fleet() as fleet:
        fleet.engine.state.sources = pushed.sources
        first = await pushed.apply(fleet, whole)
        await done(fleet)
        edited = whole + "  parallelism: 3\n"
        pushed.repository.commit("job.yaml", edited)
        change = await pushed.apply(fleet, edited)
        assert "source" not in change.message
        assert change.impact is None or change.impact.to_run == 0
        assert change.after.annotations[REVISION] == first.after.annotations[REVISION]
        assert change.after.annotations[COPY] == pushed.repository.git("rev-parse", "HEAD")
        # Another manifest in the same repository may be what the program reads.
        pushed.repository.commit("other.yaml", "a: 1")
        change = await pushed.apply(fleet, edited)
        assert change.impact is not None and change.impact.again.units == 1


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
        ("ref: main", ["2 files are kept by Git LFS", "jobs/model.bin, model.bin", "`lfs: true`"]),
        ("ref: main, path: jobs", ["1 file is kept by Git LFS", "jobs/model.bin"]),
        ("ref: main, lfs: true", []),
        ("ref: main, lfs: false", []),
    ],
)
async def test_files_of_lfs_that_tasks_would_not_get_are_refused_before_anything_is_stored(
    tmp_path: Path, more: str, said: list[str]
) -> None:
    pushed = lfs_pushed(tmp_path, more)
    async with Fleet() as fleet:
        looked = {"batchjob/job": await pushed.looked()}
        found = await foreseen(fleet, pushed.manifests, looked)
        if not said:
            wrong, warnings = split_predictions(found, read_allowed({}))
            told = [it for it in warnings if "Git LFS" in it]
            assert not wrong
            assert bool(told) == ("lfs: false" in more)
            return
        [problem], _ = split_predictions(found, read_allowed({"allowMissing": True}))
        assert str(problem).startswith("job.yaml:6:")
        assert all(it in f"{problem} {problem.hint}" for it in said)


async def foreseen(
    fleet: Fleet, manifests: list[Manifest], looked: Mapping[str, SourceState]
) -> list[Prediction]:
    changes = propose_changes(fleet.store, manifests, ApplyOptions(looked=looked), 0.0)
    providers = fleet.engine.state.providers
    world = world_of(
        fleet.store, changes, providers, {}, lambda _: None, starts_here=True, looked=looked
    )
    return await make_predictions(manifests, changes, world)


def lfs_pushed(tmp_path: Path, more: str) -> Pushed:
    pushed = Pushed(tmp_path, more)
    (pushed.repository.path / "jobs" / "run.sh").unlink()
    pushed.repository.git("rm", "-q", "--cached", "jobs/run.sh")
    pushed.repository.git("branch", "v1")
    (pushed.repository.path / "jobs").rmdir()
    with_pointer(pushed.repository)
    pushed.repository.git("tag", "v1")
    return pushed


async def test_a_name_that_is_a_tag_and_a_branch_is_said(tmp_path: Path) -> None:
    pushed = lfs_pushed(tmp_path, "ref: v1")
    assert "is a tag and a branch there" in " ".join((await pushed.looked()).warnings)


async def test_pointers_of_lfs_in_a_directory_are_refused_by_their_names(tmp_path: Path) -> None:
    source = tmp_path / "src"
    source.mkdir()
    (source / "model.bin").write_text(POINTER)
    (source / "run.sh").write_text("cat model.bin")
    spec = JOB.replace('{{git: {{url: "{url}", {more}}}}}', "{{path: src{more}}}")
    async with Fleet() as fleet:
        for more, refused in (("", True), (", exclude: ['*.bin']", False)):
            text = spec.format(more=more)
            manifests = load_manifests([Document("job.yaml", text, str(tmp_path))])
            looked = await ManifestSources(tmp_path / "home").look(manifests)
            found = [it.finding.what for it in await foreseen(fleet, manifests, looked)]
            assert [it.count("model.bin") for it in found if "Git LFS" in it] == [1] * refused


async def test_a_path_that_is_not_there_is_refused_with_its_place(tmp_path: Path) -> None:
    pushed = Pushed(tmp_path, "ref: main, path: nope")
    with pytest.raises(UsageError, match=r"job\.yaml:1: .*source\.git\.path `nope`"):
        await pushed.looked()
