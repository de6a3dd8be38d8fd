"""Takes a copy of a project's directory: what its ignore files and the manifest leave in.

Called by providers, in a thread: directories may be large. Links that lead out of the tree are
left out, or followed where the manifest says so.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fleetctl.common.errors import Refused
from fleetctl.manifest.files import fence
from fleetctl.providers.sources.excludes import DEFAULTS, DockerExcludes, Excludes

FILES_MAX = 200_000
BYTES_MAX = 20 * 1024**3  # beyond this a volume is the right place
IGNORE_BYTES_MAX = 1024**2  # of one ignore file; larger is not an ignore file

_NOTHING = Excludes(())


@dataclass(frozen=True, slots=True)
class Rules:
    """What stays out of a copy. The manifest's own patterns have the last word."""

    own: Excludes
    always: Excludes = _NOTHING
    ignore_files: bool = False  # whether .gitignore and .dockerignore are read
    follow: bool = False  # whether links that lead out of the tree stand for what they lead to

    @classmethod
    def of_project(cls, patterns: Sequence[str], *, follow: bool = False) -> Rules:
        """The rules for a directory that somebody works in."""
        return cls(Excludes(patterns), Excludes(DEFAULTS), ignore_files=True, follow=follow)

    @classmethod
    def of_checkout(cls, patterns: Sequence[str]) -> Rules:
        """The rules for what came out of a repository: all of it is there on purpose."""
        return cls(Excludes(patterns))


def take(origin: Path, target: Path, rules: Rules) -> None:
    """Fill the new directory `target` with regular files, directories, and symlinks that stay
    inside; everything else is left out. Raises Refused when it is too much, or cannot be read.
    """
    try:
        _take(origin, target, rules)
    except PermissionError as error:
        raise Refused(
            f"the source `{origin}` cannot be copied: {unreadable(origin, error)}",
            hint="change its mode, or leave it out by `exclude`",
        ) from error


def _take(origin: Path, target: Path, rules: Rules) -> None:
    target.mkdir(mode=0o700)
    size = 0
    for count, (entry, relative) in enumerate(walk(origin, rules)):
        copy = target / relative
        if entry.is_symlink():
            if not leads_out(entry, origin):
                _parent(copy)
                copy.symlink_to(Path(entry.path).readlink())
        elif entry.is_dir():
            copy.mkdir(mode=0o700, parents=True, exist_ok=True)
        elif entry.is_file():
            size += entry.stat().st_size
            if count > FILES_MAX or size > BYTES_MAX:
                limit = f"{FILES_MAX} files or {BYTES_MAX >> 30} GiB"
                raise Refused(
                    f"the source `{origin}` has more than {limit}",
                    hint="exclude what the task does not need, or keep data on a volume",
                )
            _parent(copy)
            shutil.copy2(entry.path, copy, follow_symlinks=isinstance(entry, Followed))


def _parent(copy: Path) -> None:
    """A file may come back in below a directory that stays out."""
    if not copy.parent.exists():
        copy.parent.mkdir(mode=0o700, parents=True)


@dataclass(frozen=True, slots=True)
class _Below:
    """What is known where the walk goes down.

    git: (directory, its .gitignore), the deepest last. taken_back: the deepest directory above that
    the manifest says is in, whatever .dockerignore says of it. followed: directories that links led
    to on the way down, real paths.
    """

    git: tuple[tuple[str, Excludes], ...] = ()
    docker: DockerExcludes | None = None
    taken_back: str = ""
    followed: tuple[str, ...] = ()

    def entered(self, origin: Path, directory: str) -> _Below:
        """The rules with the ignore files that lie in `directory`."""
        docker = self.docker
        if not directory and (lines := _lines(origin / ".dockerignore")):
            docker = DockerExcludes(lines)
        if lines := _lines(origin / directory / ".gitignore"):
            return replace(self, git=(*self.git, (directory, Excludes(lines))), docker=docker)
        return replace(self, docker=docker)


class Followed:
    """A link that leads out of the tree, as the file or directory that it leads to: an entry as
    os.scandir has them.
    """

    def __init__(self, link: os.DirEntry[str]) -> None:
        self.name, self.path = link.name, link.path
        self.leads_to = os.path.realpath(link.path)

    def is_symlink(self) -> bool:
        return False

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:  # noqa: ARG002 - as DirEntry
        return os.path.isdir(self.path)  # noqa: PTH112 - of every link

    def is_file(self, *, follow_symlinks: bool = True) -> bool:  # noqa: ARG002 - as DirEntry
        return os.path.isfile(self.path)  # noqa: PTH113 - of every link

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:  # noqa: ARG002 - as DirEntry
        return os.stat(self.path)  # noqa: PTH116 - of every link


Entry = os.DirEntry[str] | Followed


def walk(origin: Path, rules: Rules) -> Iterator[tuple[Entry, str]]:
    """(entry, path relative to origin) from the top down, without what stays out. Raises Refused
    for a link that is to be followed and cannot be.
    """
    waiting: list[tuple[str, _Below]] = [("", _Below())]
    while waiting:
        directory, below = waiting.pop()
        if rules.ignore_files:
            below = below.entered(origin, directory)
        with os.scandir(origin / directory) as entries:
            for found in sorted(entries, key=lambda one: one.name):
                entry = _followed(found, origin, rules)
                relative = os.path.join(directory, entry.name)
                is_directory = entry.is_dir(follow_symlinks=False)
                verdict = _verdict(relative, rules, below, is_directory=is_directory)
                if verdict.is_in:
                    yield entry, relative
                if is_directory and (verdict.is_in or verdict.look_inside):
                    inside = replace(below, taken_back=relative) if verdict.taken_back else below
                    if isinstance(entry, Followed):
                        inside = _down(entry, relative, origin, inside)
                    waiting.append((relative, inside))


def _followed(entry: os.DirEntry[str], origin: Path, rules: Rules) -> Entry:
    """The entry, or what it leads to. One that leads to nothing stays a link."""
    if not rules.follow or not entry.is_symlink() or not leads_out(entry, origin):
        return entry
    if not fence.inside(entry.path):
        name = os.path.relpath(entry.path, origin)
        raise Refused(
            f"the link `{name}` of the source leads out of the repository",
            hint="leave the link out by `exclude`, or put the files into the repository",
        )
    return Followed(entry) if os.path.exists(entry.path) else entry


def _down(entry: Followed, relative: str, origin: Path, below: _Below) -> _Below:
    """What is known in a directory that a link leads to. Raises Refused for one that holds the
    link, whose copy would hold itself.
    """
    real = entry.leads_to
    here = os.path.realpath(os.path.dirname(entry.path))  # noqa: PTH120 - a text in, a text out
    if any(_is_within(it, real) for it in (here, os.path.realpath(origin), *below.followed)):
        raise Refused(
            f"the link `{relative}` of the source `{origin}` leads to a directory that holds it",
            hint="leave the link out by `exclude`",
        )
    return replace(below, followed=(*below.followed, real))


def _is_within(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip(os.sep) + os.sep)


@dataclass(frozen=True, slots=True)
class _Verdict:
    """look_inside: of a directory that stays out, something may come back in. taken_back: the
    manifest says that it is in.
    """

    is_in: bool
    look_inside: bool = False
    taken_back: bool = False


def _verdict(relative: str, rules: Rules, below: _Below, *, is_directory: bool) -> _Verdict:
    """The manifest decides; then what either of git and Docker leaves out is out; then defaults."""
    own = rules.own.decide(relative, is_directory=is_directory)
    if own is not None:
        return _Verdict(is_in=not own, taken_back=not own)
    git = _by_git(relative, below, is_directory=is_directory)
    docker = below.docker.decide(relative, below=below.taken_back) if below.docker else None
    if git is None and docker is None:
        return _Verdict(is_in=not rules.always.match(relative, is_directory=is_directory))
    # Git never looks into a directory that is out; Docker does, where a rule takes back.
    look_inside = (
        is_directory
        and below.docker is not None
        and not git
        and not rules.always.match(relative, is_directory=True)
        and below.docker.takes_back_below(relative)
    )
    return _Verdict(is_in=not (git or docker), look_inside=look_inside)


def _by_git(relative: str, below: _Below, *, is_directory: bool) -> bool | None:
    """The deepest file that says anything decides."""
    for base, ignored in reversed(below.git):
        path = relative[len(base) + 1 :] if base else relative
        decision = ignored.decide(path, is_directory=is_directory)
        if decision is not None:
            return decision
    return None


def _lines(path: Path) -> list[str]:
    """The lines of an ignore file; nothing when there is none that can be read."""
    try:
        found = path.stat(follow_symlinks=False)
        if not stat.S_ISREG(found.st_mode) or found.st_size > IGNORE_BYTES_MAX:
            return []
        return path.read_text(encoding="utf-8-sig", errors="replace").splitlines()
    except OSError:
        return []


def leads_out(link: Entry, origin: Path) -> bool:
    """Whether a symlink leads to something that is not in the tree at `origin`; an absolute one
    does, as the tree lies elsewhere in a sandbox.
    """
    if Path(link.path).readlink().is_absolute():
        return True
    return not _is_within(os.path.realpath(link.path), os.path.realpath(origin))


def unreadable(origin: Path, error: OSError) -> str:
    """Which file of a tree cannot be read, and why."""
    name = os.path.relpath(os.fsdecode(error.filename or origin), origin)
    return f"`{name}` cannot be read: {os.strerror(error.errno or 0).lower()}"
