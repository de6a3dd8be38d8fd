"""Checkpoints that nobody could save, resume or look at: on no volume, handed to no command, or in
the containers of a function.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from fleetctl.manifest.messages import Finding
from fleetctl.specs.blocks.checkpoint import Checkpoint
from fleetctl.specs.blocks.nodes import nodes_of
from fleetctl.specs.blocks.template import Image, Template
from fleetctl.specs.kinds.trainingrun import TrainingRunSpec
from fleetctl.specs.values.scalars import Spec

_PATH = ("spec", "checkpoint", "path")
_ARGUMENTS = ("spec", "checkpoint", "resumeArgs")
# What is done by who looks at the directory, and how a manifest spells it.
_WATCHED = {"resume_args": "resumeArgs", "keep": "keep", "format": "format", "verify": "verify"}
_ADDED = " is added to a `command`"
_MIRROR = ("spec", "checkpoint", "mirror")
# What brings fsspec and its way to a place; any of them will do.
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


def wrong(spec: Spec) -> Iterator[Finding]:
    if isinstance(spec, TrainingRunSpec):
        yield from _unsaved(spec)
        yield from _unheard(spec)
        yield from _unmirrored(spec)
        yield from _unwatched(spec)
        yield from _unknown(spec)


def _unsaved(spec: TrainingRunSpec) -> Iterator[Finding]:
    """A Function brings its volumes with it; nobody knows here which."""
    if spec.checkpoint is None or spec.template.function is not None:
        return
    wanted = spec.checkpoint.path
    # A stage that does not save may do without.
    for mount in (it for part in spec.parts() for it in part.template.volumes):
        if any(_within(wanted, place) for place in (mount.mount_path, *mount.links)):
            if mount.read_only:
                message = (
                    f" is `{wanted}`, and volume `{mount.name}` is mounted there to be read only"
                )
                yield Finding(_PATH, _PATH, message, "leave `readOnly` out")
            return
    message = f" is `{wanted}`, which is on no volume: it would be lost with each sandbox"
    hint = f"mount one: `volumes: [{{name: NAME, mountPath: {wanted}}}]` in `template`"
    yield Finding(_PATH, _PATH, message, hint)


def _within(path: str, directory: str) -> bool:
    return path == directory or path.startswith(f"{directory}/")


def _unheard(spec: TrainingRunSpec) -> Iterator[Finding]:
    """Arguments are added to commands alone: who writes a script says where they go."""
    silent = [spec.template_of(index).command is None for index in range(spec.count())]
    if spec.checkpoint is not None and spec.checkpoint.resume_args and all(silent):
        yield Finding(_ARGUMENTS, _ARGUMENTS, f"{_ADDED}, and no stage has one", _IN_A_SCRIPT)
    for index, stage in enumerate(spec.stages):
        path = ("spec", "stages", index, "resumeArgs")
        if stage.resume_args and spec.checkpoint is None:
            message = " goes with a `checkpoint`, and the run has none"
            yield Finding(path, path, message, "give one: `checkpoint: {path: /ckpt/run}`")
        elif stage.resume_args and silent[index]:
            yield Finding(path, path, f"{_ADDED}, and stage `{stage.name}` has none", _IN_A_SCRIPT)


def _unmirrored(spec: TrainingRunSpec) -> Iterator[Finding]:
    """A copy is made inside of the sandbox, by packages of its image."""
    mirror = spec.checkpoint.mirror if spec.checkpoint is not None else None
    if mirror is None:
        return
    if spec.template.is_function:
        message = " works in sandboxes: fleetctl does not manage the checkpoints of a function"
        yield Finding(_MIRROR, _MIRROR, message, "leave it out, or leave out `runtime: function`")
        return
    for index in range(spec.count()):
        template = spec.template_of(index)
        places = {it.provider for it in spec.placement_of(index).candidates}
        if nodes_of(template).max > 1 and "modal" in places:
            message = " goes with one node at Modal, where each looks for checkpoints by itself"
            yield Finding(_MIRROR, _MIRROR, message, "leave it out, or use `nodes: 1`")
            return
        package = _PACKAGES.get(mirror.partition("://")[0], "fsspec")
        if _lacks(template, {package, "fsspec"}):
            message = f" is `{mirror}`, and nothing in `image.pip` brings `{package}`, which copies"
            pip = ", ".join([*(template.image.pip if template.image else ()), package])
            yield Finding(_MIRROR, _MIRROR, message, f"image: {{pip: [{pip}]}}")
            return


def _lacks(template: Template, packages: set[str]) -> bool:
    """Whether its image is known to have none of them."""
    image = template.image or Image()
    unknown = any((image.registry, image.requirements, image.snapshot, image.run))
    unknown = unknown or any(it.startswith("-") for it in image.pip)
    if unknown or "PYTHONPATH" in template.env:
        return False
    return not packages & {_project(it) for it in image.pip}


def _project(requirement: str) -> str:
    """The name in `s3fs[boto]>=2024.2`."""
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    return re.sub(r"[-_.]+", "-", match[0]).lower().replace("-", "_") if match else ""


def _unwatched(spec: TrainingRunSpec) -> Iterator[Finding]:
    """A function runs its program without checkpoint management."""
    checkpoint = spec.checkpoint
    if checkpoint is None or not spec.template.is_function:
        return
    for name in _asked(checkpoint):
        at = ("spec", "checkpoint", name)
        message = " has no effect: fleetctl does not manage the checkpoints of a function"
        hint = f"use `runtime: sandbox`; or leave `{name}` out, and let the program resume itself"
        yield Finding(at, at, message, hint)


def _unknown(spec: TrainingRunSpec) -> Iterator[Finding]:
    """With `format: none` nobody knows which checkpoints there are."""
    checkpoint = spec.checkpoint
    if checkpoint is None or checkpoint.format != "none" or spec.template.is_function:
        return
    asked = [name for name in _asked(checkpoint) if name != "format"]
    for name in [*asked, *(["mirror"] if checkpoint.mirror else [])]:
        at = ("spec", "checkpoint", name)
        message = " has no effect: with `format: none` nobody looks at the checkpoints"
        hint = f"leave `{name}` out, and let the program resume itself; or name the format"
        yield Finding(at, at, message, hint)


def _asked(checkpoint: Checkpoint) -> list[str]:
    """Fields that say something else than they do when they are left out."""
    usual = Checkpoint(path=checkpoint.path)
    asked = [
        name
        for field, name in _WATCHED.items()
        if getattr(checkpoint, field) != getattr(usual, field)
    ]
    return [*asked, *(["resume"] if checkpoint.resume.startswith("step:") else [])]
