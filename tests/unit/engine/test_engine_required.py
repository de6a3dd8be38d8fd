"""`image.requirements` of a repository is read at the commit that an apply found, and what it lists
is stored in its place.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fleetctl.common.errors import UsageError
from fleetctl.manifest import Document, Manifest, load_manifests
from fleetctl.stores.read.read_only import open_scratch
from fleetctl.tracking.manifest_sources import ManifestSources
from tests.unit.engine.test_engine_api import JOB, served
from tests.unit.providers.test_gitsource import Repository

LISTED = ["pandas", "scipy>=1", "numpy<2"]


@pytest.fixture
def origin(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "origin")
    (made.path / "deps").mkdir()
    (made.path / "deps/base.in").write_text("scipy>=1\n")
    made.commit("deps/all.txt", "-r base.in\nnumpy<2 --hash=sha256:12\n")
    return made


def text(origin: Repository, file: str = "deps/all.txt") -> str:
    image = f"image: {{pip: [pandas], requirements: {file}}}"
    source = f"source: {{git: {{url: '{origin.url}', ref: main}}}}"
    return JOB.replace('python: "SUBMIT(ok=True)"', f"script: ls, {source}, {image}")


async def pip(sources: ManifestSources, written: str) -> list[str]:
    _, stored = open_scratch()
    manifests = load_manifests([Document("job.yaml", written, "")])
    [found] = await sources.required(manifests, await sources.look(manifests), stored)
    return list(_image(found)["pip"])


def _image(manifest: Manifest) -> Any:
    dumped = manifest.spec.model_dump()["template"]["image"]
    assert dumped["requirements"] is None
    return dumped


async def test_what_a_repository_requires_is_stored_in_place_of_the_file(
    tmp_path: Path, origin: Repository
) -> None:
    async with served(tmp_path) as api:
        api.fleet.engine.state.sources = ManifestSources(tmp_path / "home")
        assert (await api.apply(text(origin)))["ok"] is True
        stored = json.loads(api.fleet.row("job").spec)["template"]["image"]
        assert stored == {"pip": LISTED}
        origin.commit("deps/all.txt", "numpy<3\n")
        await api.apply(text(origin))
        assert json.loads(api.fleet.row("job").spec)["template"]["image"]["pip"][1:] == ["numpy<3"]
        reply = await api.ask("set", key="job/job", fields=["template.image.requirements=a.txt"])
        assert reply["ok"] is False and "is read when a manifest is applied" in str(reply)


async def test_the_same_list_by_another_name_is_the_same(
    tmp_path: Path, origin: Repository
) -> None:
    sources = ManifestSources(tmp_path / "home")
    assert await pip(sources, text(origin)) == LISTED
    origin.commit("requirements.txt", "scipy>=1 # of base\nnumpy<2\n")
    assert await pip(sources, text(origin, "requirements.txt")) == LISTED


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        ("-r /etc/passwd\n", "`/etc/passwd`: it is outside of the repository"),
        ("-r ../../a.txt\n", "`../../a.txt`: it is outside of the repository"),
        ("numpy\n-e .\n", "`deps/all.txt`, line 2: `-e .` installs a directory, and an image is"),
        ("mine @ file:///a/b.whl\n", "`mine @ file:///a/b.whl` is a path of this machine"),
        ("numpy=1.0\n", "is `numpy=1.0`; pip writes a version with `==`"),
    ],
)
async def test_mistakes_of_a_repositorys_file_say_where(
    tmp_path: Path, origin: Repository, listed: str, said: str
) -> None:
    origin.commit("deps/all.txt", listed)
    with pytest.raises(UsageError) as found:
        await pip(ManifestSources(tmp_path / "home"), text(origin))
    assert str(found.value).startswith("job.yaml:2: batchjob/job: image.requirements: ")
    assert said in str(found.value)


async def test_a_file_that_is_not_there_and_a_link_out_of_the_repository(
    tmp_path: Path, origin: Repository
) -> None:
    sources = ManifestSources(tmp_path / "home")
    with pytest.raises(UsageError, match=r"has no `deps/al\.txt` at [0-9a-f]{7}") as found:
        await pip(sources, text(origin, "deps/al.txt"))
    assert found.value.hint == "did you mean `deps/all.txt`?"
    (origin.path / "deps/out.txt").symlink_to("/etc/passwd")
    origin.commit("more.txt", "")
    with pytest.raises(UsageError, match="`/etc/passwd` is a path of this machine"):
        await pip(sources, text(origin, "deps/out.txt"))


async def test_a_repository_that_cannot_be_asked_is_said(
    tmp_path: Path, origin: Repository
) -> None:
    written = text(origin).replace(origin.url, "file:///nowhere/at/all")
    with pytest.raises(UsageError, match="cannot be read from here") as found:
        await pip(ManifestSources(tmp_path / "home"), written)
    assert "list them in `image.pip`" in found.value.hint
