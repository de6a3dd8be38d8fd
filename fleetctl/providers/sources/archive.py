"""Copies of directories as they were when the first run of a template asked for them, and as
archives for providers that bring a source in one piece.

Called in a thread, as copying and packing block.
"""

from __future__ import annotations

import json
import os
import shutil
import tarfile
import threading
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from secrets import token_hex

from fleetctl.common.errors import Refused
from fleetctl.providers.paths import make_private
from fleetctl.providers.sources.revision import of_copy
from fleetctl.providers.sources.source_snapshots import name_of
from fleetctl.providers.sources.tree_copy import CopyRules, copy_tree
from fleetctl.specs.blocks.template import Source

REST = "rest.tar"


def archive_of(source: Source, job: Path) -> Path:
    """The source, packed; made once a template, so that every sandbox gets the same. Raises
    Refused.
    """
    tree = freeze_source(source, job)
    archive = tree.with_name(f"{tree.name}.tar.gz")
    if not archive.exists():
        _pack_archive(archive, tree, ["."], mode="w:gz")
    return archive


def name_in_sandbox(path: str) -> str:
    """Returns a directory's name in the sandbox: as here, where that is UTF-8."""
    return os.fsencode(name_of(Path(path))).decode("utf-8", "replace")


def rest_of(tree: Path) -> tuple[Path, frozenset[str]]:
    """Returns (a directory, the entries of its archive REST, relative to the copy). REST holds
    links, directories without a file and names that are no UTF-8; it is made once, if there are
    any.
    """
    names = frozenset(_find_odd_files(tree))
    directory = tree.with_name(f"{tree.name}.rest")
    directory.mkdir(mode=0o700, exist_ok=True)
    if names and not (directory / REST).exists():
        _pack_archive(directory / REST, tree, sorted(names), mode="w")
    return directory, names


def _find_odd_files(tree: Path) -> Iterable[str]:
    for directory, names, files in os.walk(tree):
        for name in (*names, *files):
            path = Path(directory, name)
            is_plain = not path.is_symlink() and _is_utf8(name)
            if not is_plain or (name in names and not any(path.iterdir())):
                yield str(path.relative_to(tree))


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _pack_archive(
    archive: Path,
    tree: Path,
    names: Iterable[str],
    *,
    mode: str,
) -> None:
    """Packs the archive. Sandboxes of a template may begin at once, and each makes a whole
    archive.
    """
    making = archive.with_name(f".{archive.name}.{token_hex(4)}.new")
    # By this form names are bytes, which every tar takes as they are.
    options = {"compresslevel": 1} if mode == "w:gz" else {}
    with tarfile.open(making, mode, format=tarfile.GNU_FORMAT, **options) as tar:  # type: ignore[call-overload]
        for name in names:
            tar.add(tree / name, arcname=name, filter=_as_roots)
    making.replace(archive)


def _as_roots(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Makes root the owner: the file's owner here does not exist in a sandbox."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def freeze_source(source: Source, job: Path) -> Path:
    """A copy in `job`, the directory of a resource's journals and logs; made once. Raises Refused
    for what is not a directory.
    """
    origin = Path(source.path or "")
    target = _copy_path(source, job)
    if target.exists():
        return target
    if not origin.is_dir():
        raise Refused(
            f"source.path `{origin}` is not a directory", hint="check the path in the manifest"
        )
    make_private(job)
    # Taken beside its target and renamed: a copy that exists is whole.
    taking = job / f".{target.name}.{os.getpid()}.{threading.get_ident()}"
    shutil.rmtree(taking, ignore_errors=True)
    copy_tree(origin, taking, CopyRules.of_project(source.exclude, follow=source.follow_links))
    taken = of_copy(taking).revision
    try:
        taking.rename(target)
        # After the copy: a copy without a revision file is one of unknown revision.
        _revision_path(target).write_text(taken, encoding="utf-8")
    except OSError:
        shutil.rmtree(taking)  # another start was first
    return target


def read_frozen_revision(source: Source, job: Path) -> str:
    """Returns the revision of the copy in `job`; "" while there is none, or when it is unknown."""
    try:
        return _revision_path(_copy_path(source, job)).read_text(encoding="utf-8")
    except OSError:
        return ""


def _copy_path(source: Source, job: Path) -> Path:
    follow = ["follow"] if source.follow_links else []
    facts = json.dumps([source.path, list(source.exclude), *follow])
    return job / f"source-{sha256(facts.encode()).hexdigest()[:16]}"


def _revision_path(target: Path) -> Path:
    return target.with_name(f"{target.name}.revision")
