"""Computes the revision of a directory, as one short text that is equal for equal trees; digests of
files are stored, so that an unchanged tree is not read again.

A digest is believed while size, both times and the file's number are what they were, and only of
files that had been left alone for a while when they were read: a file that is written twice
within one tick of the disk's clock looks the same (as git's index has it). Losing this costs time
alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import posixpath
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from fleetctl.manifest.files import fence
from fleetctl.manifest.files.documents import POINTER
from fleetctl.providers.sources.excludes import NOTHING_APART, Excludes, UnrelatedFiles, is_manifest
from fleetctl.providers.sources.tree_copy import (
    CopyRules,
    Entry,
    FollowedLink,
    describe_unreadable,
    leads_out,
    walk_tree,
)

# An apply waits for it, so it must be over in about a second; a larger directory is not compared.
FILES_MAX = 20_000
BYTES_MAX = 256 << 20
DIGEST_CHARS = 64
APART = "apart "  # in front of the digest of a file that is not part of the program

_ALL = CopyRules(Excludes(()))

# Behind the digest of a file: it is a manifest of ours, or a pointer of Git LFS.
MANIFEST = "m"
LFS = "p"
SETTLED_NS = 2_000_000_000  # the coarsest clock of a disk that we know, FAT's

_Row = list[int | str]


@dataclass(frozen=True, slots=True)
class SourceTree:
    """The revision and files of a source. revision: of the program; "" when it is too large to
    compare, or cannot be read. copy: the same for all files in a copy. files: relative path ->
    digest of the file or link. outside: links that lead out of the tree, which no copy has.
    pointers: files that are not there, as Git LFS keeps them. problem: the file that cannot be
    read, and why.
    """

    revision: str = ""
    copy: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    outside: tuple[str, ...] = ()
    pointers: tuple[str, ...] = ()
    problem: str = ""


def of_project(
    origin: Path,
    exclude: tuple[str, ...],
    stats: FileStats | None = None,
    apart: UnrelatedFiles = NOTHING_APART,
    *,
    follow: bool = False,
) -> SourceTree:
    """Returns the tree of a copy taken now. stats: digests of files that were read before. Raises
    Refused for a link that cannot be followed.
    """
    return _read_tree(
        origin, CopyRules.of_project(exclude, follow=follow), stats or FileStats(), apart
    )


def of_copy(copy: Path, apart: UnrelatedFiles = NOTHING_APART) -> SourceTree:
    """Returns the tree of a copy that was taken; as `of_project`."""
    return _read_tree(copy, _ALL, FileStats(), apart)


@dataclass(slots=True)
class _Listing:
    """The files and links that a walk has found so far."""

    files: dict[str, str] = field(default_factory=dict)
    directories: set[str] = field(default_factory=set)
    outside: list[str] = field(default_factory=list)
    pointers: list[str] = field(default_factory=list)

    def tree(self) -> SourceTree:
        program = {name: it for name, it in self.files.items() if not it.startswith(APART)}
        # A directory with unrelated files alone came with them.
        empty = self.directories - set(_list_parents(self.files))
        revision = copy = _tree_digest(program, empty)
        if len(program) < len(self.files):
            whole = {name: it.removeprefix(APART) for name, it in self.files.items()}
            copy = _tree_digest(whole, empty)
        return SourceTree(
            revision,
            copy,
            self.files,
            tuple(self.outside),
            tuple(self.pointers),
        )


def _read_tree(
    origin: Path,
    rules: CopyRules,
    stats: FileStats,
    apart: UnrelatedFiles,
) -> SourceTree:
    found = _Listing()
    size = 0
    try:
        if not origin.is_dir():
            return SourceTree()
        for count, (entry, relative) in enumerate(walk_tree(origin, rules)):
            if entry.is_symlink():
                if not leads_out(entry, origin):
                    found.files[relative] = f"link {str(Path(entry.path).readlink())!r}"
                else:
                    found.outside.append(relative)
            elif entry.is_dir():
                found.directories.add(relative)
            elif entry.is_file():
                looks = entry.stat()
                size += looks.st_size
                if count > FILES_MAX or size > BYTES_MAX:
                    return SourceTree()
                digest = stats.digest(entry, relative, looks)
                manifest = digest.endswith(MANIFEST)
                if digest.endswith(LFS):
                    found.pointers.append(relative)
                runs = "x" if looks.st_mode & 0o100 else "-"
                held = f"file {runs} {digest[:DIGEST_CHARS]}"
                if apart.has(relative, looks, manifest=manifest):
                    held = APART + held
                found.files[relative] = held
    except (FileNotFoundError, NotADirectoryError):
        return SourceTree()  # it changes under our eyes
    except OSError as error:
        return SourceTree(problem=describe_unreadable(origin, error))
    return found.tree()


def _list_parents(names: Iterable[str]) -> Iterable[str]:
    """Yields all parent directories of the names, some more than once. A file may be included below
    an excluded directory; a copy then has that directory.
    """
    for name in names:
        while name := posixpath.dirname(name):
            yield name


def _tree_digest(files: Mapping[str, str], empty: Collection[str]) -> str:
    """Returns the digest of a directory's files. empty: directories without a file; those with
    one are known by it.
    """
    lines = [f"{relative!r} {held}" for relative, held in files.items()]
    lines += [f"{it!r} directory" for it in {*empty, *_list_parents((*files, *empty))}]
    return f"sha256:{sha256(chr(10).join(sorted(lines)).encode()).hexdigest()}"


class FileStats:
    """Digests of files by their stats. place: the file of the digests; None: no digest is kept."""

    def __init__(self, place: Path | None = None) -> None:
        self._place = place
        self._known: dict[str, _Row] = _read_stats(place) if place is not None else {}
        self._seen: dict[str, _Row] = {}
        self._taken_at_ns = time.time_ns()
        self._changed = False

    def digest(
        self,
        entry: Entry,
        relative: str,
        found: os.stat_result,
    ) -> str:
        """Returns the SHA-256 of a file's content, 64 hex digits, followed by MANIFEST or LFS for
        such a file. Raises OSError.
        """
        mark = [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino]
        known = self._known.get(relative)
        if known is not None and known[:-1] == mark:
            self._seen[relative] = known
            return str(known[-1])
        with fence.open_regular(entry.path, follow=isinstance(entry, FollowedLink)) as stream:
            content = stream.read()
        digest = sha256(content).hexdigest() + _sort_of_file(relative, content)
        if max(found.st_mtime_ns, found.st_ctime_ns) < self._taken_at_ns - SETTLED_NS:
            self._seen[relative] = [*mark, digest]
        self._changed = True
        return digest

    def keep(self) -> None:
        """Writes down new digests, if any; a disk that refuses costs time."""
        if self._place is None or not (self._changed or len(self._seen) < len(self._known)):
            return
        fresh = self._place.with_name(f".{self._place.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            fresh.parent.mkdir(
                mode=0o700,
                parents=True,
                exist_ok=True,
            )
            fresh.write_text(json.dumps(self._seen, separators=(",", ":")), encoding="utf-8")
            fresh.replace(self._place)


def _sort_of_file(relative: str, content: bytes) -> str:
    if content.startswith(POINTER):
        return LFS
    if is_manifest(relative, content):
        return MANIFEST
    return ""


def _read_stats(place: Path) -> dict[str, _Row]:
    try:
        found = json.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if isinstance(found, dict):
        return found
    return {}
