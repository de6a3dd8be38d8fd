"""Paths inside a sandbox: what would hide the system, and a checkpoint that no volume holds."""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.manifest.checks import works
from fleetctl.manifest.messages import Finding
from fleetctl.manifest.problems import Path
from fleetctl.specs.trainingrun import TrainingRunSpec
from fleetctl.specs.values.scalars import Spec

# A mount there hides the programs, libraries or settings that the sandbox itself runs by.
SYSTEM = frozenset(
    f"/{name}"
    for name in (
        *("bin", "boot", "etc", "lib", "lib32", "lib64", "libx32", "run", "sbin", "usr", "var"),
        *("usr/bin", "usr/include", "usr/lib", "usr/lib32", "usr/lib64", "usr/libexec"),
        *("usr/local", "usr/local/bin", "usr/local/lib", "usr/sbin", "usr/share"),
        *("var/lib", "var/run"),
    )
)
_WHOLE = ("/bin/", "/boot/", "/lib/", "/lib64/", "/sbin/", "/usr/bin/", "/usr/sbin/")


def wrong(spec: Spec) -> Iterator[Finding]:
    for at, mount in works.volumes(spec):
        yield from _hiding((*at, "mountPath"), mount.mount_path)
        for number, link in enumerate(mount.links):
            yield from _hiding((*at, "links", number), link)
    for at, source in works.sources(spec):
        if source.mount_path is not None:
            yield from _hiding((*at, "mountPath"), source.mount_path)
    if isinstance(spec, TrainingRunSpec):
        yield from _checkpoint(spec)


def _hiding(path: Path, directory: str) -> Iterator[Finding]:
    if directory in SYSTEM or directory.startswith(_WHOLE):
        said = f" is `{directory}`, which would hide the system's own files there"
        name = directory.strip("/").partition("/")[0]
        yield Finding(path, path, said, f"use a path of its own, such as `/data` or `/mnt/{name}`")


def _checkpoint(spec: TrainingRunSpec) -> Iterator[Finding]:
    """A Function brings its volumes with it; nobody knows here which."""
    if spec.checkpoint is None or spec.template.function is not None:
        return
    wanted, path = spec.checkpoint.path, ("spec", "checkpoint", "path")
    for part in spec.parts():  # a stage that does not save may do without
        for mount in part.template.volumes:
            if any(_within(wanted, place) for place in (mount.mount_path, *mount.links)):
                if mount.read_only:
                    yield _read_only(path, wanted, mount.name)
                return
    said = f" is `{wanted}`, which is on no volume: it would be lost with each sandbox"
    hint = f"mount one: `volumes: [{{name: NAME, mountPath: {wanted}}}]` in `template`"
    yield Finding(path, path, said, hint)


def _read_only(path: Path, wanted: str, name: str) -> Finding:
    said = f" is `{wanted}`, and volume `{name}` is mounted there to be read only"
    return Finding(path, path, said, "leave `readOnly` out")


def _within(path: str, directory: str) -> bool:
    return path == directory or path.startswith(f"{directory}/")
