"""Checkpoints that nobody could save or resume: on no volume, or handed to no command."""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.manifest.messages import Finding
from fleetctl.specs.kinds.trainingrun import TrainingRunSpec
from fleetctl.specs.values.scalars import Spec

_PATH = ("spec", "checkpoint", "path")
_ARGUMENTS = ("spec", "checkpoint", "resumeArgs")
_ADDED = " is added to a `command`"
_IN_A_SCRIPT = "in a script: `${FLEETCTL_RESUME_FROM:+--resume=$FLEETCTL_RESUME_FROM}`"


def wrong(spec: Spec) -> Iterator[Finding]:
    if isinstance(spec, TrainingRunSpec):
        yield from _unsaved(spec)
        yield from _unheard(spec)


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
