"""Paths inside a sandbox: what would hide the system."""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.manifest.checks import works
from fleetctl.manifest.messages import Finding
from fleetctl.manifest.problems import Path
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


def _hiding(path: Path, directory: str) -> Iterator[Finding]:
    if directory in SYSTEM or directory.startswith(_WHOLE):
        message = f" is `{directory}`, which would hide the system's own files there"
        name = directory.strip("/").partition("/")[0]
        yield Finding(
            path, path, message, f"use a path of its own, such as `/data` or `/mnt/{name}`"
        )
