"""The manifest is not the program: files that it was read from, manifests of others and files that
fleetctl wrote beside the program run nothing again, and a file of the program does.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from fleetctl.apply.change import Change
from fleetctl.apply.propose import propose_changes
from fleetctl.apply.request import ApplyOptions
from fleetctl.apply.write.commit import ObjectEdits, manifest_with
from fleetctl.apply.write.store_changes import store_changes
from fleetctl.manifest import load_manifests, read_documents
from fleetctl.manifest.yaml.emit import to_yaml
from fleetctl.providers.sources.revision import of_project
from fleetctl.tracking.annotations import COPY, REVISION
from fleetctl.tracking.manifest_sources import ManifestSources
from fleetctl.tracking.written_files import WrittenFiles
from tests.unit.engine.fake_world import Fleet

JOB = """\
apiVersion: fleetctl.dev/v1alpha1
kind: BatchJob
metadata: {name: job}
spec:
  parallelism: 4
  tasks: {fromFile: rows.csv}
  template: {source: {path: .%s}, command: [python, train.py]}
"""
SWEEP = """\
apiVersion: fleetctl.dev/v1alpha1
kind: Sweep
metadata: {name: job}
spec:
  searchFrom: {file: sweep.yaml}
  template: {source: {path: .}}
"""
SEARCH = "program: train.py\nmethod: grid\nparameters: {x: {values: [1, 2]}}\n"
OTHER = "apiVersion: fleetctl.dev/v1alpha1\nkind: Volume\nmetadata: {name: v}\nspec: {}\n"


class Project:
    """A directory with a program and its manifest, and what applies of it come to."""

    def __init__(self, fleet: Fleet, place: Path, name: str = "project") -> None:
        self._fleet = fleet
        self.here = place / name
        self.here.mkdir()
        self.home = place / "home"
        self.home.mkdir()
        self.sources = ManifestSources(self.home)
        for name, text in {
            "job.yaml": JOB % "", "rows.csv": "a\n1\n2\n", "train.py": "print(1)\n"
        }.items():  # fmt: skip
            (self.here / name).write_text(text)

    def append(self, name: str, text: str) -> None:
        with (self.here / name).open("a") as file:
            file.write(text)

    async def propose(self, *values: str) -> Change:
        """What an apply of the files, as they are now, would change."""
        documents = read_documents([str(self.here / "job.yaml")])
        documents += [
            it._replace(role="values")
            for it in read_documents([str(self.here / name) for name in values])
        ]
        manifests = load_manifests(documents)
        looked = self.sources.keep(manifests, await self.sources.look(manifests))
        order = ApplyOptions(looked=looked, sources=self.sources)
        [change] = propose_changes(self._fleet.store, manifests, order, 0.0)
        return change

    async def apply(self, *values: str) -> Change:
        change = await self.propose(*values)
        store_changes(self._fleet.store, [change], 0.0)
        return change

    async def warnings(self) -> tuple[str, ...]:
        manifests = load_manifests(read_documents([str(self.here / "job.yaml")]))
        return (await self.sources.look(manifests))[manifests[0].key].warnings

    async def notes(self) -> tuple[str, ...]:
        manifests = load_manifests(read_documents([str(self.here / "job.yaml")]))
        return (await self.sources.look(manifests))[manifests[0].key].notes


def revision(change: Change) -> str:
    return change.after.annotations[REVISION]


async def test_an_edit_of_what_the_manifest_was_read_from_runs_nothing(tmp_path: Path) -> None:
    async with Fleet() as fleet:
        project = Project(fleet, tmp_path)
        first = revision(await project.apply())
        project.append("job.yaml", "# a comment\n")
        assert (await project.apply()).outcome == "unchanged"
        (project.here / "job.yaml").write_text(
            (JOB % "").replace("parallelism: 4", "parallelism: 3")
        )
        change = await project.apply()
        assert [field.path for field in change.fields] == ["parallelism"]
        project.append("rows.csv", "3\n")
        change = await project.apply()
        assert revision(change) == first
        assert [field.path for field in change.fields if field.path == "source"] == []
        project.append("train.py", "print(2)\n")
        change = await project.propose()
        assert revision(change) != first
        assert "source 1 file: train.py" in change.message


async def test_the_configuration_of_a_sweep_is_no_part_of_its_program(tmp_path: Path) -> None:
    async with Fleet() as fleet:
        project = Project(fleet, tmp_path)
        (project.here / "job.yaml").write_text(SWEEP)
        (project.here / "sweep.yaml").write_text(SEARCH)
        first = revision(await project.apply())
        project.append("sweep.yaml", "# why these\n")
        assert (await project.apply()).outcome == "unchanged"
        (project.here / "sweep.yaml").write_text(SEARCH.replace("[1, 2]", "[1, 2, 3]"))
        assert revision(await project.apply()) == first


async def test_values_of_variables_and_manifests_of_others_count_for_nothing(
    tmp_path: Path,
) -> None:
    head = "---\nkind: Variables\napiVersion: fleetctl.dev/v1alpha1\n"
    variables = f"{head}variables:\n  n: {{type: integer}}\n"
    async with Fleet() as fleet:
        project = Project(fleet, tmp_path)
        project.append("job.yaml", variables)
        text = (project.here / "job.yaml").read_text()
        (project.here / "job.yaml").write_text(
            text.replace("parallelism: 4", "parallelism: ${{ n }}")
        )
        (project.here / "prod.yaml").write_text("n: 1\n")
        first = revision(await project.apply("prod.yaml"))
        (project.here / "prod.yaml").write_text("n: 2 # more\n")
        (project.here / "other.yaml").write_text(OTHER)
        (project.here / "variables.yaml").write_text(variables)
        (project.here / "other.json").write_text(
            '{"kind": "Volume", "apiVersion": "fleetctl.dev/v1"}'
        )
        assert revision(await project.apply("prod.yaml")) == first
        (project.here / "config.yaml").write_text("lr: 3\n")
        assert revision(await project.propose("prod.yaml")) != first


async def test_what_fleetctl_wrote_there_counts_until_somebody_edits_it(tmp_path: Path) -> None:
    async with Fleet() as fleet:
        project = Project(fleet, tmp_path)
        first = revision(await project.apply())
        (project.here / "out").mkdir()
        for name in ("r.parquet", "out/0.json"):
            (project.here / name).write_text("written")
        assert revision(await project.propose()) != first
        WrittenFiles(project.home).note([project.here / "r.parquet", project.here / "out/0.json"])
        assert (await project.propose()).outcome == "unchanged"
        assert any("r.parquet" in it and "out/0.json" in it for it in await project.notes())
        (project.here / "r.parquet").write_text("written, and then edited")
        assert revision(await project.propose()) != first


async def test_the_copy_that_tasks_get_has_all_files_as_they_are(tmp_path: Path) -> None:
    async with Fleet() as fleet:
        project = Project(fleet, tmp_path)
        await project.apply()
        project.append("rows.csv", "3\n")
        after = (await project.apply()).after
        manifest = manifest_with(fleet.store, "BatchJob", "job", ObjectEdits())
        template = project.sources.pinned(manifest.spec.template, after.annotations)  # type: ignore[attr-defined]
        assert template.source is not None and template.source.path is not None
        copy = Path(template.source.path)
        assert (copy / "rows.csv").read_text() == "a\n1\n2\n3\n"
        assert sorted(os.listdir(copy)) == ["job.yaml", "rows.csv", "train.py"]
        assert after.annotations[COPY] != after.annotations[REVISION]
        # Who edits the object has no file beside it, and looks by the same rule.
        looked = await project.sources.look([manifest])
        assert looked[manifest.key].revision == after.annotations[REVISION]
        assert project.sources.describe_drift(template.source, after.annotations) == ""


async def test_exclude_takes_a_file_back_in(tmp_path: Path) -> None:
    async with Fleet() as fleet:
        project = Project(fleet, tmp_path)
        (project.here / "job.yaml").write_text(JOB % ", exclude: ['!rows.csv']")
        first = revision(await project.apply())
        project.append("rows.csv", "# a comment of the program's\n")
        assert revision(await project.propose()) != first


async def test_a_file_that_the_work_names_is_warned_of(tmp_path: Path) -> None:
    async with Fleet() as fleet:
        project = Project(fleet, tmp_path)
        assert await project.warnings() == ()
        text = (JOB % "").replace("train.py]", "train.py, --data=rows.csv]")
        (project.here / "job.yaml").write_text(text)
        [said] = await project.warnings()
        assert "`rows.csv`" in said and 'exclude: ["!rows.csv"]' in said


async def test_objects_of_an_earlier_version_keep_their_finished_work(tmp_path: Path) -> None:
    """Their revisions counted the manifest, too: by the copy that they have, they are the same."""
    async with Fleet() as fleet:
        project = Project(fleet, tmp_path)
        change = await project.propose()
        old = of_project(project.here, ()).revision
        before = {k: v for k, v in change.after.annotations.items() if "source" not in k}
        row = replace(
            change.after,
            annotations={**before, REVISION: old, "fleetctl.dev/source-origin": str(project.here)},
        )
        with fleet.store.transaction():
            fleet.store.resources.put(row, expected_version=None)
        assert (await project.apply()).outcome == "unchanged"
        project.append("job.yaml", "# a comment\n")
        project.append("rows.csv", "3\n")
        assert revision(await project.apply()) == old
        project.append("rows.csv", "4\n")
        assert revision(await project.apply()) == old
        project.append("train.py", "print(2)\n")
        change = await project.propose()
        assert revision(change) != old and "source 1 file: train.py" in change.message


@pytest.mark.parametrize("name", ["job.yaml", "sub/link.yaml"])
async def test_a_manifest_is_known_by_where_links_lead(tmp_path: Path, name: str) -> None:
    async with Fleet() as fleet:
        project = Project(fleet, tmp_path)
        (project.here / "sub").mkdir()
        (project.here / "sub" / "link.yaml").symlink_to("../job.yaml")
        (project.here / "job.yaml").write_text(
            (JOB % "").replace("{fromFile: rows.csv}", "{completions: 1}")
        )
        documents = read_documents([str(project.here / name)])
        [manifest] = load_manifests(documents)
        looked = await project.sources.look([replace(manifest, origin=str(project.here))])
        assert "job.yaml" in looked[manifest.key].apart


async def test_a_project_in_a_directory_whose_name_is_no_utf8_is_stored(tmp_path: Path) -> None:
    async with Fleet() as fleet:
        project = Project(fleet, tmp_path, os.fsdecode(b"proj\xe9"))
        after = (await project.apply()).after
        row = fleet.store.resources.get("BatchJob", "job", "default")
        assert row is not None and row.annotations == after.annotations
        assert (await project.apply()).outcome == "unchanged"
        shown = to_yaml(dict(row.annotations))
        assert "proj\\udce9" in shown
