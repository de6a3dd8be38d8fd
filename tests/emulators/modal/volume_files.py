"""The files of volumes: what is committed, and the private working copies that boxes write to.

Used by the RPCs in volumes.py and by whatever gives a box its mounts. Never speaks a protocol.

A box never sees the committed directory itself. It gets a copy made when it starts; what it
wrote reaches the volume at a commit, file by file, the last writer winning; and what it never
committed is gone with it.
"""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

V1 = 1
V2 = 2


@dataclass(slots=True)
class Volume:
    """One volume. `name` is empty for an ephemeral one; `directory` holds what is committed."""

    volume_id: str
    name: str
    environment: str
    version: int
    directory: Path
    created_at: float = field(default_factory=time.time)
    heartbeat_at: float = 0.0
    commits: int = 0


@dataclass(slots=True)
class Attachment:
    """A volume as one box sees it. `base` is what the copy looked like when it last agreed with
    the volume: relative path -> fingerprint."""

    volume: Volume
    mount_path: str
    directory: Path
    read_only: bool
    sub_path: str = ""
    base: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def committed(self) -> Path:
        return inside(self.volume.directory, self.sub_path)


def inside(root: Path, path: str) -> Path:
    """The place of a volume path below `root`. `..` cannot leave it."""
    parts: list[str] = []
    for part in PurePosixPath("/" + path).parts[1:]:
        if part == "..":
            parts = parts[:-1]
        elif part != ".":
            parts.append(part)
    return root.joinpath(*parts)


def walk(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Every file, link and directory below `root`, parents first."""
    for entry in sorted(os.scandir(root), key=lambda found: found.name):
        info = entry.stat(follow_symlinks=False)
        yield entry.name, info
        if stat.S_ISDIR(info.st_mode):
            for name, below in walk(root / entry.name):
                yield f"{entry.name}/{name}", below


def fingerprint(info: os.stat_result) -> tuple[int, ...]:
    """Changes whenever a file is written, replaced or given another mode. For a directory only
    that it is one counts: its times change with what is in it."""
    if stat.S_ISDIR(info.st_mode):
        return (stat.S_IFDIR,)
    return (info.st_mode, info.st_size, info.st_mtime_ns, info.st_ino)


def write_file(target: Path, data: bytes, mode: int = 0o644) -> None:
    """Replaces at once, so that a copy which shares the old file keeps the old bytes."""
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f".{target.name}.{time.monotonic_ns()}")
    beside.write_bytes(data)
    beside.chmod(mode & 0o7777)
    beside.replace(target)


def copy_entry(source: Path, target: Path) -> None:
    """One file, link or directory (without what is in it), replacing what is there."""
    info = source.lstat()
    if stat.S_ISDIR(info.st_mode):
        if target.is_symlink() or (target.exists() and not target.is_dir()):
            target.unlink()
        target.mkdir(parents=True, exist_ok=True)
        target.chmod(stat.S_IMODE(info.st_mode))
        return
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f".{target.name}.{time.monotonic_ns()}")
    shutil.copy2(source, beside, follow_symlinks=False)
    beside.replace(target)


def remove_entry(target: Path) -> None:
    """Absence is fine: another writer may have removed it first."""
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(target)
    else:
        target.unlink(missing_ok=True)


def check_out(attachment: Attachment) -> None:
    """Makes the working copy equal to what is committed. A read-only copy shares the files of the
    volume, which are only ever replaced and so still look as they did."""
    committed = attachment.committed
    committed.mkdir(parents=True, exist_ok=True)
    attachment.directory.mkdir(parents=True, exist_ok=True)
    for child in attachment.directory.iterdir():
        remove_entry(child)
    copy = os.link if attachment.read_only else shutil.copy2
    shutil.copytree(
        committed, attachment.directory, symlinks=True, copy_function=copy, dirs_exist_ok=True
    )
    attachment.base = {name: fingerprint(info) for name, info in walk(attachment.directory)}


def check_in(attachment: Attachment) -> list[str]:
    """Brings what changed in the working copy to the volume; returns the paths that changed.
    Files that this copy never touched are left as other writers made them."""
    if attachment.read_only:
        return []
    now = {name: fingerprint(info) for name, info in walk(attachment.directory)}
    changed = [name for name, print_ in now.items() if attachment.base.get(name) != print_]
    gone = [name for name in attachment.base if name not in now]
    committed = attachment.committed
    for name in changed:
        copy_entry(attachment.directory / name, committed / name)
    for name in gone:
        remove_entry(committed / name)
    attachment.base = now
    if changed or gone:
        attachment.volume.commits += 1
    return changed + gone
