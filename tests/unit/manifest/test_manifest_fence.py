"""Files that a manifest names are read from its own repository alone, despite links and at any
time; and only regular files are read.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl import specs
from fleetctl.common.errors import Refused, Unavailable
from fleetctl.engine.execute.secrets import check_file
from fleetctl.manifest import Document, ManifestErrors, load_manifests
from fleetctl.manifest.files import fence
from fleetctl.manifest.files.fence import fence_directory
from fleetctl.providers.remote.recipes import build_recipe
from fleetctl.specs.blocks.template import Image, Template


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "manifests").mkdir()
    return tmp_path / "manifests"


def problems(directory: Path, kind: str, spec: str) -> list[str]:
    head = f"apiVersion: fleetctl.dev/v1alpha1\nkind: {kind}\n"
    lines = "".join(f"  {line}\n" for line in spec.splitlines())
    rest = spec if kind == "Overlay" else f"metadata: {{name: x}}\nspec:\n{lines}"
    with pytest.raises(ManifestErrors) as caught:
        load_manifests([Document("manifests/job.yaml", head + rest, str(directory))])
    return [str(it) for it in caught.value.problems]


# Each field of a manifest that names a file or a directory beside it, with a spec that has one.
TEMPLATE = "template: {{script: x, "
NAMING = {
    ("Source", "path"): ("BatchJob", TEMPLATE + "source: {{path: {0}}}}}"),
    ("FunctionSpec", "source"): ("Function", "source: {{path: {0}}}"),
    ("SecretSpec", "fromFile"): ("Secret", "fromFile: {{TOKEN: {0}}}"),
    ("FromFile", "path"): ("BatchJob", "template: {{script: x}}\ntasks: {{fromFile: {0}}}"),
    ("FromFiles", "glob"): ("BatchJob", "template: {{script: x}}\ntasks: {{fromFiles: {0}}}"),
    ("SearchFile", "file"): ("Sweep", "searchFrom: {{file: {0}}}"),
    ("Image", "pip -r"): ("BatchJob", TEMPLATE + "image: {{pip: ['-r {0}']}}}}"),
    ("Image", "pip"): ("BatchJob", TEMPLATE + "image: {{pip: ['{0}']}}}}"),
    ("Image", "pip -e"): ("BatchJob", TEMPLATE + "image: {{pip: ['-e {0}']}}}}"),
    ("PipIndex", "findLinks"): (
        "BatchJob",
        TEMPLATE + "image: {{pip: [a], pipIndex: {{findLinks: ['{0}']}}}}}}",
    ),
    ("Image", "requirements"): (
        "BatchJob",
        TEMPLATE + "source: {{path: .}}, image: {{requirements: {0}}}}}",
    ),
    ("overlay", "base"): ("Overlay", "base: {0}"),
}
DIRECTORIES = {("Source", "path"), ("FunctionSpec", "source"), ("PipIndex", "findLinks")}
# Fields with similar names that name no file of the applying user: a path in a sandbox or in a
# repository, an account of this machine's user, a property of files.
OTHERS = {
    *(("BackupSettings", "to"), ("Checkpoint", "path"), ("GitSource", "path"), ("Metrics", "path")),
    *(("PackageCache", "hostPath"), ("ProviderAccount", "kubeconfig"), ("ReadinessCheck", "http")),
    *(("ProviderAccount", "profile"), ("SourceRepository", "path"), ("ServerReady", "http")),
    *(("Source", "mountPath"), ("Template", "workdir")),
    *(("Stage", "workdir"), ("NodeGroup", "workdir")),
    *(("VolumeMount", "mountPath"), ("VolumeMount", "links")),
    *(("Checkpoint", "resumeArgs"), ("Checkpoint", "verify"), ("GitSource", "lfs")),
    *(("Metrics", "from"), ("SourceRepository", "knownHosts"), ("SourceRepository", "lfs")),
    *(("RetentionSettings", "workDirectories"), ("RetentionSettings", "finishedWork")),
    *(("Source", "followLinks"), ("SweepSpec", "searchFrom"), ("Tasks", "fromFile")),
    *(("Tasks", "fromFiles"), ("Tasks", "files"), ("Template", "outputs")),
    *(("FileTasks", it) for it in ("base", "found", "chunk", "names", "volume")),
    *(("FoundFile", "path"), ("FoundFile", "sha256"), ("FoundFile", "digest")),
    *(("SignatureCheck", "ssh"), ("KeptHere", "mountPath"), ("ExitCodes", "values")),
    # Of the machines that this user reaches: directories there, and this user's own ssh.
    *(("SshHost", it) for it in ("directory", "identityFile", "shared")),
    *(("SshSettings", "config"), ("SlurmSettings", "config"), ("SlurmSettings", "sharedDir")),
    ("ProviderSpec", "slurm"),
    *((it, "ttlSecondsAfterFinished") for it in ("BatchJobSpec", "SweepSpec", "TrainingRunSpec")),
}
_NAMES = re.compile(r"(?i)path|file|dir|requirements|^base$|values$")
_WORDS = re.compile(r"(?i)\b(files?|director\w+|paths?)\b")


def _sounding(node: Any, model: str) -> Iterator[tuple[str, str]]:
    """Yields (model, field) of each field whose name or description suggests a file."""
    for name, field in (node.get("properties") or {}).items():
        if _NAMES.search(name) or _WORDS.search(field.get("description", "")):
            yield model, name
    for name, inner in (node.get("$defs") or {}).items():
        yield from _sounding(inner, name)


def test_each_field_that_names_a_file_is_held_to_its_repository() -> None:
    """A new field must be put into one of the two lists."""
    found: set[tuple[str, str]] = set()
    for file in (Path(specs.__file__).parent / "schemas").glob("*.json"):
        schema = json.loads(file.read_text(encoding="utf-8"))
        if "spec" in schema["properties"]:
            del schema["properties"]  # of a short file: those of the models
        found.update(_sounding(schema, file.stem))
    assert found - NAMING.keys() - OTHERS == set()
    assert found >= OTHERS


@pytest.mark.parametrize("way", ["absolute", "up", "link"])
@pytest.mark.parametrize("field", NAMING, ids=".".join)
def test_a_repository_names_no_file_outside_of_it(
    here: Path, field: tuple[str, str], way: str
) -> None:
    name = "outside-1-py3-none-any.whl" if field[1] == "pip" else "outside.jsonl"
    outside = here.parent / name
    if field in DIRECTORIES:
        outside.mkdir()
    else:
        outside.write_text("secret words")
    (here / name).symlink_to(outside)
    named = {"absolute": str(outside), "up": f"../{name}", "link": f"./{name}"}[way]
    if field == ("PipIndex", "findLinks"):  # which are absolute
        named = str(here / name) if way == "link" else str(outside)
    kind, spec = NAMING[field]
    with fence_directory(here):
        found = " ".join(problems(here, kind, spec.format(named)))
    assert "outside of" in found or "must be a file inside the source" in found
    assert "secret words" not in found


def test_a_link_that_comes_after_the_look_at_a_path_leads_nowhere(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later commit may put one there, between any two steps of ours."""
    outside = here.parent / "outside"
    outside.mkdir()
    (outside / "f").write_text("secret words")
    (here / "a").mkdir()
    (here / "a" / "f").write_text("words")
    opened = os.open

    def swap(path: Any, *more: Any, **named: Any) -> int:
        if str(path).endswith("a/f") and not (here / "a").is_symlink():
            (here / "a").rename(here / "b")
            (here / "a").symlink_to(outside)
        return opened(path, *more, **named)

    with fence_directory(here):
        monkeypatch.setattr(os, "open", swap)
        with pytest.raises(fence.OutsideRepository):
            fence.open_regular(here / "a" / "f")


def test_what_is_read_later_is_held_to_the_checkout_that_it_lies_in(here: Path) -> None:
    tree = here / "tree"
    (tree / ".git").mkdir(parents=True)
    (tree / fence.CHECKOUT_MARK).write_text("")
    (tree / "own").write_text("mine")
    (here / "token").write_text("secret words")
    (tree / "sub").symlink_to(here)
    with fence.open_regular(tree / "own") as file:
        assert file.read() == b"mine"
    with pytest.raises(fence.OutsideRepository):
        fence.open_regular(tree / "sub" / "token")
    with pytest.raises(Unavailable, match="outside of the repository"):
        check_file("token", str(tree / "sub" / "token"))
    package = Image.model_validate({"pip": [f"{tree}/sub"]})
    with pytest.raises(Refused, match="outside of the repository"):
        build_recipe(Template.model_validate({"script": "x"}).model_copy(update={"image": package}))


def test_a_directory_of_the_kernel_is_no_source(here: Path) -> None:
    for path in ("/proc", "/proc/self", "/sys/kernel", "/dev", "/"):
        (problem,) = problems(
            here, "BatchJob", f"template: {{script: x, source: {{path: {path}}}}}"
        )
        assert f"`{path}`; it holds what is no file of a program" in problem
    (problem,) = problems(here, "Sweep", "searchFrom: {file: /proc/self/environ}")
    assert "it is no regular file" in problem
