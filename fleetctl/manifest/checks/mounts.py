"""Finds paths inside a sandbox that would hide the system."""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.common.finding import Finding, Path
from fleetctl.manifest.checks import spec_parts
from fleetctl.specs.kinds.batchjob import BatchJobSpec
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


def find_problems(spec: Spec) -> Iterator[Finding]:
    for at, mount in spec_parts.list_volume_mounts(spec):
        yield from _check_hides_system((*at, "mountPath"), mount.mount_path)
        for number, link in enumerate(mount.links):
            yield from _check_hides_system((*at, "links", number), link)
    for at, source in spec_parts.list_sources(spec):
        if source.mount_path is not None:
            yield from _check_hides_system((*at, "mountPath"), source.mount_path)


def find_missing_volume(spec: BatchJobSpec) -> Iterator[Finding]:
    """Yields a finding where tasks are files of a volume that their sandboxes do not have."""
    files = spec.tasks.files if spec.tasks is not None else None
    volume = files.volume if files is not None else None
    mounts = spec.template.volumes
    if volume is None or spec.template.function is not None:  # a Function has volumes of its own
        return
    if not any(it.name == volume for it in mounts):
        at: Path = ("spec", "tasks", "fromFiles", "volume")
        message = f" is `{volume}`, which the template does not mount"
        hint = f"add `volumes: [{{name: {volume}, mountPath: /{volume}, readOnly: true}}]` to it"
        yield Finding(at, message, hint)


def _check_hides_system(path: Path, directory: str) -> Iterator[Finding]:
    if directory in SYSTEM or directory.startswith(_WHOLE):
        message = f" is `{directory}`, which would hide the system's own files there"
        name = directory.strip("/").partition("/")[0]
        yield Finding(path, message, f"use a path of its own, such as `/data` or `/mnt/{name}`")
