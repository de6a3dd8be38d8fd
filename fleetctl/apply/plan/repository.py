"""Asks a git repository for revisions and their files, and lays a revision out as a directory that
exists as long as a plan takes.

Only objects are read: work trees, hooks, filters and attributes of the repository have no effect,
and no object is fetched. So for a clone that lacks history the message names what to fetch.
"""

from __future__ import annotations

import os
import posixpath
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fleetctl.common.errors import NotFound, Refused, UsageError
from fleetctl.common.text import did_you_mean, escape_line
from fleetctl.manifest.files.documents import Document, is_address, read_documents

ANSWER_S = 120.0  # per command: to list a tree of 100,000 files takes a second
REVISION_CHARS_MAX = 250
ERROR_CHARACTERS_MAX = 300
SHORT_DIGITS = 9  # of a commit in messages
# `main...HEAD` and the like name two; a name that begins with `-` would be an option.
_REVISION = re.compile(r"(?!-)[^\x00-\x20\x7f]+")

FILES_MAX = 200_000
# The size of both trees together, shared files once: a laptop's /tmp has room for it.
BYTES_MAX = 1 << 30
_LINK = "120000"


@dataclass(frozen=True, slots=True)
class GitCommit:
    """One commit. said: its name as the user wrote it."""

    said: str
    digits: str
    at_s: int  # when it was made

    @property
    def shown(self) -> str:
        short = self.digits[:SHORT_DIGITS]
        if self.digits.startswith(self.said):
            return short
        return f"{self.said} ({short})"


@dataclass(frozen=True, slots=True)
class GitBlob:
    """A file of a tree. path: below the tree's root. mode: as git writes it, `100644`."""

    path: str
    mode: str
    digits: str
    size: int


def repository_of(places: Sequence[Path]) -> GitRepository:
    """Returns the repository of the first of these directories that is in one. Raises NotFound."""
    for place in places[:-1]:
        try:
            return GitRepository(place)
        except NotFound:
            continue
    return GitRepository(places[-1])


class GitRepository:
    """The repository that a directory belongs to. Raises NotFound outside of any.

    top: of its work tree, absolute; None for a bare one.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        try:
            found = self._ask("rev-parse", "--is-bare-repository", "--is-shallow-repository")
        except Refused as error:
            raise NotFound(
                f"`{directory}` is not in a git repository: {error}",
                hint="--diff-from and --diff-to compare two revisions of one",
            ) from None
        bare, shallow = (line == "true" for line in found.split())
        inside = self._ask("rev-parse", "--is-inside-work-tree").strip() == "true"
        self.shallow = shallow
        self.top = None if bare else directory
        if inside:
            self.top = Path(self._ask("rev-parse", "--show-toplevel").rstrip("\n"))

    def commit(self, said: str) -> GitCommit:
        """Returns a commit. Raises NotFound for a name that the clone does not have, UsageError for
        an invalid one."""
        if len(said) > REVISION_CHARS_MAX or not _REVISION.fullmatch(said) or ".." in said:
            raise UsageError(
                f"`{escape_line(said[:REVISION_CHARS_MAX])}` is not one revision",
                hint="a branch, a tag or a commit: `--diff-from origin/main --diff-to HEAD`",
            )
        try:
            found = self._ask("rev-parse", "--verify", "--quiet", f"{said}^{{commit}}").strip()
        except Refused:
            raise NotFound(
                f"`{said}` is not a revision of this clone", hint=self._lacks(said)
            ) from None
        return GitCommit(said, found, int(self._ask("show", "-s", "--format=%ct", found)))

    def parting(self, before: GitCommit, after: GitCommit) -> GitCommit:
        """Returns the commit where `after` parted from `before`, which a pull request is compared
        with: `before` itself where it is an ancestor. Raises Refused where the clone does not know.
        """
        bases = self._base(before, after)
        if before.digits in bases or after.digits in bases:
            return before
        if not bases:
            hint = "git fetch --unshallow" if self.shallow else "name two revisions of one history"
            what = " in this shallow clone" if self.shallow else ""
            raise Refused(
                f"{before.shown} and {after.shown} have no common commit{what}, so they"
                " cannot be compared",
                hint=f"{hint}; in GitHub Actions: `actions/checkout` with `fetch-depth: 0`",
            )
        base = bases[0]
        return GitCommit(base, base, int(self._ask("show", "-s", "--format=%ct", base)))

    def files(self, commit: GitCommit) -> list[GitBlob]:
        """Returns all files of its tree, without submodules. Raises Refused where the clone lacks a
        part."""
        found = self._ask(
            "ls-tree",
            "-r",
            "-l",
            "-z",
            "--full-tree",
            commit.digits,
        )
        return [it for row in found.split("\0") if row and (it := _parse_blob(row)) is not None]

    def read_into(self, blobs: Sequence[str], stream: IO[bytes]) -> Iterator[tuple[str, bytes]]:
        """Yields each blob with its content, in order. stream: an empty file that buffers them.
        Raises Refused where the clone lacks a blob.
        """
        self._ask("cat-file", "--batch", given="\n".join(blobs) + "\n", to=stream)
        stream.seek(0)
        for digits in blobs:
            head = stream.readline().decode("ascii", "replace").split()
            if len(head) != 3 or head[0] != digits:
                raise Refused(
                    f"the clone lacks object {digits[:SHORT_DIGITS]}",
                    hint="`git fetch --refetch` brings all files of a partial clone",
                )
            yield digits, stream.read(int(head[2]))
            stream.read(1)

    def _base(self, before: GitCommit, after: GitCommit) -> list[str]:
        try:
            return self._ask("merge-base", "--all", before.digits, after.digits).split()
        except Refused:
            return []

    def _lacks(self, said: str) -> str:
        known = self._ask("for-each-ref", "--format=%(refname:short)").split()
        if self.shallow:
            return (
                "this clone is shallow: `git fetch --unshallow origin`; in GitHub Actions"
                " `actions/checkout` with `fetch-depth: 0`"
            )
        branch = said.removeprefix("origin/")
        return (
            did_you_mean(said, known) or f"git fetch origin {branch}:refs/remotes/origin/{branch}"
        )

    def _ask(
        self,
        *arguments: str,
        given: str = "",
        to: IO[bytes] | None = None,
    ) -> str:
        """Returns the output of git. Raises Refused with its error message."""
        options = ("-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}")
        try:
            answer = subprocess.run(
                ["git", *options, *arguments],
                cwd=self._directory,
                input=os.fsencode(given),
                stdout=subprocess.PIPE if to is None else to,
                stderr=subprocess.PIPE,
                timeout=ANSWER_S,
                check=False,
                env=_build_environment(),
            )
        except FileNotFoundError as error:
            raise Refused("`git` is not installed", hint="install git") from error
        except subprocess.TimeoutExpired as error:
            raise Refused(
                f"git did not answer within {ANSWER_S:.0f} s", hint=f"git {' '.join(arguments[:2])}"
            ) from error
        if answer.returncode:
            said = " ".join(os.fsdecode(answer.stderr).split())[:ERROR_CHARACTERS_MAX]
            hint = _hint_of(said)
            raise Refused(escape_line(said) or f"git {arguments[0]} failed", hint=hint)
        return os.fsdecode(answer.stdout or b"")


def _hint_of(said: str) -> str:
    if "dubious ownership" in said:
        return "git config --global --add safe.directory '*', where you trust this directory"
    if "bad object" in said or "unable to read" in said:
        return "git fsck"
    return ""


def _build_environment() -> dict[str, str]:
    """Returns an environment in which git asks no question on a terminal and fetches no object."""
    return {
        **{name: text for name, text in os.environ.items() if name not in ("GIT_INDEX_FILE",)},
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "LC_ALL": "C",
    }


def _parse_blob(row: str) -> GitBlob | None:
    """Reads `100644 blob DIGITS SIZE<tab>PATH`; None for a submodule."""
    head, _, path = row.partition("\t")
    mode, sort, digits, size = head.split()
    if sort != "blob":
        return None
    return GitBlob(path, mode, digits, int(size) if size.isdigit() else 0)


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
    """Yields the trees, in order. Raises Refused for too large or missing ones.

    Each revision is written whole, for a manifest may name any file beside it. Content that
    several share is one file with several names.
    """
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
