"""Finds checkpoints that can never be saved, resumed or found: on no volume, handed to no command,
or in the containers of a function.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from fleetctl.common.finding import Finding
from fleetctl.specs.blocks.checkpoint import Checkpoint
from fleetctl.specs.blocks.nodes import nodes_of
from fleetctl.specs.blocks.template import Image, Template
from fleetctl.specs.kinds.trainingrun import TrainingRunSpec

_PATH = ("spec", "checkpoint", "path")
_ARGUMENTS = ("spec", "checkpoint", "resumeArgs")
# Features of the code that looks at the directory, and their spelling in a manifest.
_WATCHED = {"resume_args": "resumeArgs", "keep": "keep", "format": "format", "verify": "verify"}
_ADDED = " is added to a `command`"
_MIRROR = ("spec", "checkpoint", "mirror")
# By scheme of a URL: the package that brings fsspec and the access to such a URL.
_PACKAGES = {
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "abfs": "adlfs",
    "abfss": "adlfs",
    "az": "adlfs",
    "hf": "huggingface_hub",
    "oss": "ossfs",
    "webdav": "webdav4",
}
_IN_A_SCRIPT = "in a script: `${FLEETCTL_RESUME_FROM:+--resume=$FLEETCTL_RESUME_FROM}`"


def find_problems(spec: TrainingRunSpec) -> Iterator[Finding]:
    yield from _check_is_saved(spec)
    yield from _check_resume_args(spec)
    yield from _check_mirror(spec)
    yield from _check_function_fields(spec)
    yield from _check_format_none(spec)


def _check_is_saved(spec: TrainingRunSpec) -> Iterator[Finding]:
    """Checks that a volume keeps the checkpoints. A Function brings its volumes with it; they are
    unknown here.
    """
    if spec.checkpoint is None or spec.template.function is not None:
        return
    wanted = spec.checkpoint.path
    # A stage that does not save may do without.
    for mount in (it for part in spec.parts() for it in part.template.volumes):
        if any(_is_within(wanted, place) for place in (mount.mount_path, *mount.links)):
            if mount.read_only:
                message = (
                    f" is `{wanted}`, and volume `{mount.name}` is mounted there to be read only"
                )
                yield Finding(_PATH, message, "leave `readOnly` out")
            return
    message = f" is `{wanted}`, which is on no volume: it would be lost with each sandbox"
    hint = f"mount one: `volumes: [{{name: NAME, mountPath: {wanted}}}]` in `template`"
    yield Finding(_PATH, message, hint)


def _is_within(path: str, directory: str) -> bool:
    return path == directory or path.startswith(f"{directory}/")


def _check_resume_args(spec: TrainingRunSpec) -> Iterator[Finding]:
    """Checks the arguments of a resumed run. Arguments are added to commands alone: the author of a
    script writes their position.
    """
    silent = [spec.template_of(index).command is None for index in range(spec.count())]
    if spec.checkpoint is not None and spec.checkpoint.resume_args and all(silent):
        yield Finding(_ARGUMENTS, f"{_ADDED}, and no {spec.noun} has one", _IN_A_SCRIPT)
    for index, stage in enumerate(spec.named_parts):
        path = ("spec", f"{spec.noun}s", index, "resumeArgs")
        if stage.resume_args and spec.checkpoint is None:
            message = " goes with a `checkpoint`, and the run has none"
            yield Finding(path, message, "give one: `checkpoint: {path: /ckpt/run}`")
        elif stage.resume_args and silent[index]:
            yield Finding(path, f"{_ADDED}, and {spec.noun} `{stage.name}` has none", _IN_A_SCRIPT)


def _check_mirror(spec: TrainingRunSpec) -> Iterator[Finding]:
    """A copy is made inside of the sandbox, by packages of its image."""
    mirror = spec.checkpoint.mirror if spec.checkpoint is not None else None
    if mirror is None:
        return
    if spec.template.is_function:
        message = " works in sandboxes: fleetctl does not manage the checkpoints of a function"
        yield Finding(_MIRROR, message, "leave it out, or leave out `runtime: function`")
        return
    if (here := _path_of(mirror)) and not _is_on_volume(spec, here):
        message = f" is `{mirror}`, a directory on no volume: copies would end with their sandbox"
        hint = "mount a volume there: `volumes: [{name: NAME, mountPath: DIR}]` in `template`"
        yield Finding(_MIRROR, message, hint)
        return
    for index in range(spec.count()):
        template = spec.template_of(index)
        places = {it.provider for it in spec.placement_of(index).candidates}
        if nodes_of(template).max > 1 and "modal" in places:
            message = " goes with one node at Modal, where each looks for checkpoints by itself"
            yield Finding(_MIRROR, message, "leave it out, or use `nodes: 1`")
            return
        package = _PACKAGES.get(mirror.partition("://")[0], "fsspec")
        if _lacks_packages(template, {package, "fsspec"}):
            message = f" is `{mirror}`, and nothing in `image.pip` brings `{package}`, which copies"
            pip = ", ".join([*(template.image.pip if template.image else ()), package])
            yield Finding(_MIRROR, message, f"image: {{pip: [{pip}]}}")
            return


def _path_of(mirror: str) -> str:
    """Returns the path of a directory of the sandbox's own; empty for a location elsewhere."""
    scheme, _, path = mirror.partition("://")
    if scheme in ("file", "local"):
        return "/" + path.lstrip("/")
    return ""


def _is_on_volume(spec: TrainingRunSpec, path: str) -> bool:
    """Returns True if every part that copies could leave its copies on a volume."""
    if spec.template.function is not None:
        return True  # it brings its volumes with it, which are unknown here
    normal = posixpath.normpath(path)
    mounts = (it for part in spec.parts() for it in part.template.volumes if not it.read_only)
    places = (place for mount in mounts for place in (mount.mount_path, *mount.links))
    return any(_is_within(normal, posixpath.normpath(place)) for place in places)


def _lacks_packages(template: Template, packages: set[str]) -> bool:
    """Returns True if its image is known to have no package of `packages`."""
    image = template.image or Image()
    unknown = any((image.registry, image.requirements, image.snapshot, image.run))
    unknown = unknown or any(it.startswith("-") for it in image.pip)
    if unknown or "PYTHONPATH" in template.env:
        return False
    return not packages & {_project_name(it) for it in image.pip}


def _project_name(requirement: str) -> str:
    """The name in `s3fs[boto]>=2024.2`."""
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    if match:
        return re.sub(r"[-_.]+", "-", match[0]).lower().replace("-", "_")
    return ""


def _check_function_fields(spec: TrainingRunSpec) -> Iterator[Finding]:
    """A function runs its program without checkpoint management."""
    checkpoint = spec.checkpoint
    if checkpoint is None or not spec.template.is_function:
        return
    for name in _changed_fields(checkpoint):
        at = ("spec", "checkpoint", name)
        message = " has no effect: fleetctl does not manage the checkpoints of a function"
        hint = f"use `runtime: sandbox`; or leave `{name}` out, and let the program resume itself"
        yield Finding(at, message, hint)


def _check_format_none(spec: TrainingRunSpec) -> Iterator[Finding]:
    """Checks `format: none`, with which the checkpoints are unknown."""
    checkpoint = spec.checkpoint
    if checkpoint is None or checkpoint.format != "none" or spec.template.is_function:
        return
    asked = [name for name in _changed_fields(checkpoint) if name != "format"]
    for name in [*asked, *(["mirror"] if checkpoint.mirror else [])]:
        at = ("spec", "checkpoint", name)
        message = " has no effect: with `format: none` fleetctl does not look at the checkpoints"
        hint = f"leave `{name}` out, and let the program resume itself; or name the format"
        yield Finding(at, message, hint)


def _changed_fields(checkpoint: Checkpoint) -> list[str]:
    """Returns the fields whose values differ from their defaults."""
    usual = Checkpoint(path=checkpoint.path)
    asked = [
        name
        for field, name in _WATCHED.items()
        if getattr(checkpoint, field) != getattr(usual, field)
    ]
    return [*asked, *(["resume"] if checkpoint.resume.startswith("step:") else [])]
