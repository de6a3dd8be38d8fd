"""The part of the provider suite about tasks that are files of a volume: one look lists them with
their contents, and each task finds its file where the volume is mounted. A provider whose volumes
cannot be listed is refused before anything is made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from fleetctl.manifest import Document, Manifest, load_manifests
from fleetctl.providers.contract.account import account_of, built_in
from fleetctl.providers.contract.volume_files import FileCopy
from fleetctl.providers.sources.source_snapshots import InputFiles
from fleetctl.specs.kinds.batchjob import BatchJobSpec
from fleetctl.stores.read.read_only import open_scratch
from fleetctl.tracking.task_inputs import TaskInputs, list_volumes
from fleetctl.wiring.account_registry import volume_files
from tests.contracts.provider_worlds import MOUNT, World, script, story

FILES = {"in/a b.txt": "one\n", "in/deep/it's $HOME.txt": "two\n", "in/.hidden.txt": "", "x.md": ""}


class ProviderVolumeTasks:
    """Mixed into ProviderSuite."""

    sort = ""  # the provider's
    reads_contents = True  # size and time of change stand for a file where a look reads none

    @story
    async def test_a_file_of_a_volume_is_a_task_that_reads_it_there(self, world: World) -> None:
        await world.provider.ensure_volume(world.volume)
        await _put(world, self.sort, FILES)
        spec = await _list_tasks(world, self.sort)
        assert spec.tasks is not None and spec.tasks.files is not None
        found = [it.path for it in spec.tasks.files.found]
        assert found == ["in/a b.txt", "in/deep/it's $HOME.txt"]
        volumes = [{"name": world.volume, "mountPath": f"{MOUNT}/"}]
        for index, text in enumerate(("one", "two")):
            params = spec.params(index)
            template = script(
                'cat "$TASK_FILE"; echo "$TASK_FILE" | sed "s#.*/in/#in/#"',
                volumes=volumes,
            )
            files = TaskInputs(InputFiles(world.directory)).of_run(params, template)
            ref = await world.begin(
                world.order(template, run=f"run-{index}", params=params, files=files)
            )
            seen = await world.ended(ref)
            log = (await world.log(ref)).decode()
            assert (seen.ok, log) == (True, f"{text}\n{found[index]}\n"), seen.message
        await world.provider.remove_volume(world.volume)

    @story
    async def test_a_chunk_of_a_volume_has_a_path_a_line(self, world: World) -> None:
        await world.provider.ensure_volume(world.volume)
        await _put(world, self.sort, FILES)
        spec = await _list_tasks(world, self.sort, ", chunk: 2")
        params = spec.params(0)
        template = script(
            'printf "%s\\n" "$TASK_FILES" | while IFS= read -r it; do cat "$it"; done',
            volumes=[{"name": world.volume, "mountPath": MOUNT}],
        )
        files = TaskInputs(InputFiles(world.directory)).of_run(params, template)
        ref = await world.begin(world.order(template, params=params, files=files))
        seen = await world.ended(ref)
        assert (seen.ok, await world.log(ref)) == (True, b"one\ntwo\n"), seen.message
        await world.provider.remove_volume(world.volume)

    @story
    async def test_only_a_changed_file_of_a_volume_is_another_task(self, world: World) -> None:
        await world.provider.ensure_volume(world.volume)
        await _put(world, self.sort, FILES)
        before = await _list_tasks(world, self.sort)
        again = await _list_tasks(world, self.sort)
        assert before == again
        await _put(world, self.sort, {"in/a b.txt": "longer than one\n", "in/c.txt": ""})
        after = await _list_tasks(world, self.sort)
        known = _params_of(before)
        assert [it in known for it in _params_of(after)] == [False, False, True]
        await world.provider.remove_volume(world.volume)

    @story
    async def test_the_content_of_a_file_in_a_volume_is_its_task(self, world: World) -> None:
        await world.provider.ensure_volume(world.volume)
        await _put(world, self.sort, FILES)
        known = _params_of(await _list_tasks(world, self.sort))
        assert all(("digest" in it) is self.reads_contents for it in known)
        if self.reads_contents:
            await _put(world, self.sort, {"in/a b.txt": "one\n", "in/deep/it's $HOME.txt": "too\n"})
            new = _params_of(await _list_tasks(world, self.sort))
            assert [it in known for it in new] == [True, False]
        await world.provider.remove_volume(world.volume)


def _params_of(spec: BatchJobSpec) -> list[str]:
    return [json.dumps(spec.params(index)) for index in range(spec.count() or 0)]


def _manifests(
    world: World,
    provider: str,
    more: str,
) -> list[Manifest]:
    name = world.volume
    text = (
        f"kind: Provider\nname: {provider}\nspec: {json.dumps(world.declared)}\n---\n"
        f"kind: Volume\nname: {name}\nprovider: {provider}\n---\n"
        f"kind: BatchJob\nname: x\nscript: work\nplacement: {provider}\n"
        f"volumes: [{{name: {name}, mountPath: {MOUNT}}}]\n"
        f"tasks: {{fromFiles: {{glob: 'in/**/*.txt', volume: {name}{more}}}}}\n"
    )
    return load_manifests([Document("job.yaml", text, str(world.directory))])


async def _list_tasks(
    world: World,
    provider: str,
    more: str = "",
) -> BatchJobSpec:
    """Returns the spec of a job over the volume's texts, as an apply stores it."""
    _, stored = open_scratch()
    manifests = _manifests(world, provider, more)
    found = await list_volumes(manifests, stored, world.directory / "home")
    spec = next(it.spec for it in found if it.kind == "BatchJob")
    assert isinstance(spec, BatchJobSpec)
    return spec


async def _put(
    world: World,
    provider: str,
    files: Mapping[str, str],
) -> None:
    copies = []
    for at, (path, text) in enumerate(files.items()):
        local = Path(world.directory, f"brought-{at}")
        local.write_text(text)
        copies.append(FileCopy(local, path, len(text)))
    account = account_of(provider, world.declared) if world.declared else built_in(provider)
    reader = volume_files(account, world.directory / "home", store_id=world.store_id)
    await reader.put(world.volume, copies, tell=lambda _: None)
