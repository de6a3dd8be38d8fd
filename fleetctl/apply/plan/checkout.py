"""Two revisions as directories that exist as long as a plan takes. Called by revision_plan.py.

Both are written whole: a manifest may name any file beside it. Content that both share is one file
with two names.
"""

from __future__ import annotations

import os
import posixpath
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fleetctl.apply.plan.repository import GitBlob, GitCommit, GitRepository
from fleetctl.common.errors import NotFound, Refused, UsageError
from fleetctl.common.text import did_you_mean
from fleetctl.manifest.files.documents import Document, is_address, read_documents

FILES_MAX = 200_000
# The size of both trees together, shared files once: a laptop's /tmp has room for it.
BYTES_MAX = 1 << 30
_LINK = "120000"


@dataclass(frozen=True, slots=True)
class RevisionTree:
    """One revision in a directory. paths: of its files, below that directory."""

    commit: GitCommit
    root: Path
    paths: frozenset[str]

    def has(self, path: str) -> bool:
        """Returns true where a file, or a directory with files, exists. path: "" is the whole."""
        return path in self.paths or (self.root / path).is_dir()

    def documents(
        self,
        names: Sequence[tuple[str, str]],
        *,
        recursive: bool = False,
        role: str = "",
    ) -> list[Document]:
        """Returns the texts of these (path in the tree, path as the user wrote it), where they
        exist."""
        found: list[Document] = []
        for path, said in names:
            whole = str(self.root / path) if path else str(self.root)
            if not self.has(path):
                continue
            for it in read_documents([whole], recursive=recursive, may_be_empty=True):
                shown = said.rstrip("/") + it.path[len(whole) :]
                found.append(it._replace(path=posixpath.normpath(shown), role=role))
        return found


@contextmanager
def checked_out(
    repository: GitRepository, commits: Sequence[GitCommit]
) -> Iterator[list[RevisionTree]]:
    """Yields the trees, in order. Raises Refused for too large or missing ones."""
    listed = [repository.files(commit) for commit in commits]
    sizes = {blob.digits: blob.size for blobs in listed for blob in blobs}
    if len(sizes) > FILES_MAX or sum(sizes.values()) > BYTES_MAX:
        raise Refused(
            f"the two revisions hold {len(sizes):,} files of {sum(sizes.values()) >> 20:,} MiB;"
            f" at most {FILES_MAX:,} of {BYTES_MAX >> 20:,} MiB are compared",
            hint="keep manifests in a repository of their own, and data out of git",
        )
    with tempfile.TemporaryDirectory(prefix="fleetctl-review-") as room:
        # Resolved as the loader does: macOS's /tmp is a link.
        place = Path(room).resolve()
        roots = [place / str(number) for number in range(len(commits))]
        _write_trees(repository, listed, roots)
        yield [
            RevisionTree(commit, root, frozenset(it.path for it in blobs))
            for commit, root, blobs in zip(commits, roots, listed, strict=True)
        ]


def resolve_names(
    repository: GitRepository,
    trees: Sequence[RevisionTree],
    names: Sequence[str],
    directory: Path,
) -> list[tuple[str, str]]:
    """Returns each path below the tree's root, and as the user wrote it in `directory`. Raises
    UsageError for paths that cannot be in a repository, NotFound for paths that are in no tree.
    """
    found = []
    for name in names:
        if name == "-" or is_address(name):
            raise UsageError(
                f"`-f {name}` has no revisions",
                hint="with --diff-from, -f names files and directories of the repository",
            )
        path = _resolve_inside(repository, name, directory)
        if not any(tree.has(path) for tree in trees):
            known = sorted({posixpath.dirname(it) for tree in trees for it in tree.paths} - {""})
            known += [it for it in trees[-1].paths if posixpath.dirname(it) == ""]
            said = " nor in ".join(tree.commit.shown for tree in reversed(trees))
            raise NotFound(f"`{name}` is not in {said}", hint=did_you_mean(path, known))
        found.append((path, name))
    return found


def _resolve_inside(
    repository: GitRepository,
    name: str,
    directory: Path,
) -> str:
    if repository.top is None:
        path = posixpath.normpath(name)
    else:
        # Links on the way to the repository do not belong to it; links inside do.
        whole = Path(name).is_absolute()
        place, last = os.path.split(name) if whole else (directory, name)
        path = os.path.relpath(os.path.join(os.path.realpath(place), last), repository.top)
    if posixpath.isabs(path) or path.split("/")[0] == "..":
        raise UsageError(
            f"`{name}` is outside of the repository", hint="name what two revisions of it hold"
        )
    if path == ".":
        return ""
    return path


def _write_trees(
    repository: GitRepository,
    listed: Sequence[Sequence[GitBlob]],
    roots: Sequence[Path],
) -> None:
    wanted: dict[str, list[tuple[Path, GitBlob]]] = {}
    directories: set[str] = set()
    for blobs, root in zip(listed, roots, strict=True):
        root.mkdir()
        for blob in blobs:
            if _is_plain(blob.path):
                wanted.setdefault(blob.digits, []).append((root, blob))
                directories.add(os.path.dirname(root / blob.path))  # as text
    for directory in sorted(directories):
        os.makedirs(directory, exist_ok=True)  # as text
    links: list[tuple[Path, GitBlob, bytes]] = []
    with tempfile.TemporaryFile() as stream:
        for digits, content in repository.read_into([*wanted], stream):
            links += _write_blob(wanted[digits], content)
    _make_symlinks(links)


def _write_blob(
    places: Sequence[tuple[Path, GitBlob]], content: bytes
) -> Iterator[tuple[Path, GitBlob, bytes]]:
    """Writes one blob under all its names; yields links instead of writing them."""
    first = ""
    for root, blob in places:
        if blob.mode == _LINK:
            yield root, blob, content
            continue
        target = f"{root}/{blob.path}"
        if first and _try_hardlink(first, target):
            continue
        with open(target, "wb") as file:
            file.write(content)
        first = target


def _try_hardlink(first: str, target: str) -> bool:
    """Returns false where a file system has no further name for it."""
    try:
        os.link(first, target)
    except OSError:
        return False
    return True


def _make_symlinks(found: Sequence[tuple[Path, GitBlob, bytes]]) -> None:
    """Writes the links. A link that leads out of the tree would show files of no revision: it is
    left out."""
    made: list[tuple[Path, str]] = []
    for root, blob, content in found:
        link = f"{root}/{blob.path}"
        target = os.fsdecode(content)
        if target and "\0" not in target and not os.path.lexists(link):
            Path(link).symlink_to(target)
            made.append((root, link))
    for root, link in made:
        if not Path(os.path.realpath(link)).is_relative_to(root):
            Path(link).unlink()


def _is_plain(path: str) -> bool:
    """Returns false for names that would leave the tree: git writes no such name, another program
    may."""
    parts = path.split("/")
    return not any(part in ("", ".", "..") or part.lower() == ".git" for part in parts)
