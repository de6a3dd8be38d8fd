"""Copies a project's directory, without the files that its ignore files and the manifest leave out.

Called by providers, in a thread: directories may be large. Links that lead out of the tree are left
out, or followed where the manifest sets that.
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
BYTES_MAX = 20 * 1024**3  # beyond this a volume is the right choice
IGNORE_BYTES_MAX = 1024**2  # of an ignore file; a larger file is not an ignore file

_NOTHING = Excludes(())


@dataclass(frozen=True, slots=True)
class CopyRules:
    """Rules for the files that stay out of a copy. The manifest's own patterns have the last
    word.
    """

    own: Excludes
    always: Excludes = _NOTHING
    ignore_files: bool = False  # whether .gitignore and .dockerignore are read
    follow: bool = False  # whether links that lead out of the tree stand for what they lead to

    @classmethod
    def of_project(cls, patterns: Sequence[str], *, follow: bool = False) -> CopyRules:
        """The rules for a directory that somebody works in."""
        return cls(Excludes(patterns), Excludes(DEFAULTS), ignore_files=True, follow=follow)

    @classmethod
    def of_checkout(cls, patterns: Sequence[str]) -> CopyRules:
        """Returns the rules for a checkout of a repository: all its files are there on purpose."""
        return cls(Excludes(patterns))


def copy_tree(
    origin: Path,
    target: Path,
    rules: CopyRules,
) -> None:
    """Fills the new directory `target` with regular files, directories, and symlinks that stay
    inside; everything else is left out. Raises Refused when it is too much, or cannot be read.
    """
    try:
        _fill_tree(origin, target, rules)
    except PermissionError as error:
        raise Refused(
            f"the source `{origin}` cannot be copied: {describe_unreadable(origin, error)}",
            hint="change its mode, or leave it out by `exclude`",
        ) from error


def _fill_tree(
    origin: Path,
    target: Path,
    rules: CopyRules,
) -> None:
    target.mkdir(mode=0o700)
    size = 0
    for count, (entry, relative) in enumerate(walk_tree(origin, rules)):
        copy = target / relative
        if entry.is_symlink():
            if not leads_out(entry, origin):
                _ensure_parent(copy)
                copy.symlink_to(Path(entry.path).readlink())
        elif entry.is_dir():
            copy.mkdir(
                mode=0o700,
                parents=True,
                exist_ok=True,
            )
        elif entry.is_file():
            size += entry.stat().st_size
            if count > FILES_MAX or size > BYTES_MAX:
                limit = f"{FILES_MAX} files or {BYTES_MAX >> 30} GiB"
                raise Refused(
                    f"the source `{origin}` has more than {limit}",
                    hint="exclude what the task does not need, or keep data on a volume",
                )
            _ensure_parent(copy)
            with (
                fence.open_regular(entry.path, follow=isinstance(entry, FollowedLink)) as content,
                copy.open("xb") as file,
            ):
                shutil.copyfileobj(content, file)
            shutil.copystat(entry.path, copy)


def _ensure_parent(copy: Path) -> None:
    """A file may come back in below a directory that stays out."""
    if not copy.parent.exists():
        copy.parent.mkdir(mode=0o700, parents=True)


@dataclass(frozen=True, slots=True)
class _DirectoryRules:
    """The rules that apply where the walk goes down.

    git: (directory, its .gitignore), the deepest last. taken_back: the deepest directory above that
        the manifest includes, whatever .dockerignore excludes. followed: directories that links led
        to on the way down, real paths.
    """

    git: tuple[tuple[str, Excludes], ...] = ()
    docker: DockerExcludes | None = None
    taken_back: str = ""
    followed: tuple[str, ...] = ()

    def enter_directory(self, origin: Path, directory: str) -> _DirectoryRules:
        """The rules with the ignore files that lie in `directory`."""
        docker = self.docker
        if not directory and (lines := _read_lines(origin / ".dockerignore")):
            docker = DockerExcludes(lines)
        if lines := _read_lines(origin / directory / ".gitignore"):
            return replace(self, git=(*self.git, (directory, Excludes(lines))), docker=docker)
        return replace(self, docker=docker)


class FollowedLink:
    """A link that leads out of the tree, as the file or directory that it leads to: an entry as
    os.scandir has them.
    """

    def __init__(self, link: os.DirEntry[str]) -> None:
        self.name = link.name
        self.path = link.path
        self.leads_to = os.path.realpath(link.path)

    def is_symlink(self) -> bool:
        return False

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:  # as DirEntry
        return os.path.isdir(self.path)  # of every link

    def is_file(self, *, follow_symlinks: bool = True) -> bool:  # as DirEntry
        return os.path.isfile(self.path)  # of every link

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:  # as DirEntry
        return os.stat(self.path)  # of every link


Entry = os.DirEntry[str] | FollowedLink


def walk_tree(origin: Path, rules: CopyRules) -> Iterator[tuple[Entry, str]]:
    """Returns (entry, path relative to origin) from the top down, without what stays out. Raises
    Refused for a link that is to be followed and cannot be.
    """
    waiting: list[tuple[str, _DirectoryRules]] = [("", _DirectoryRules())]
    while waiting:
        directory, below = waiting.pop()
        fence.look_at(origin / directory)
        if rules.ignore_files:
            below = below.enter_directory(origin, directory)
        with os.scandir(origin / directory) as entries:
            for found in sorted(entries, key=lambda one: one.name):
                entry = _follow_link(found, origin, rules)
                relative = os.path.join(directory, entry.name)
                is_directory = entry.is_dir(follow_symlinks=False)
                verdict = _judge_entry(relative, rules, below, is_directory=is_directory)
                if verdict.is_in:
                    yield entry, relative
                if is_directory and (verdict.is_in or verdict.look_inside):
                    inside = replace(below, taken_back=relative) if verdict.taken_back else below
                    if isinstance(entry, FollowedLink):
                        inside = _enter_link(entry, relative, origin, inside)
                    waiting.append((relative, inside))


def _follow_link(
    entry: os.DirEntry[str],
    origin: Path,
    rules: CopyRules,
) -> Entry:
    """Returns the entry, or the link's target. A link without a target stays a link."""
    if not rules.follow or not entry.is_symlink() or not leads_out(entry, origin):
        return entry
    if not fence.is_inside(entry.path):
        name = os.path.relpath(entry.path, origin)
        raise Refused(
            f"the link `{name}` of the source leads out of the repository",
            hint="leave the link out by `exclude`, or put the files into the repository",
        )
    if os.path.exists(entry.path):
        return FollowedLink(entry)
    return entry


def _enter_link(
    entry: FollowedLink,
    relative: str,
    origin: Path,
    below: _DirectoryRules,
) -> _DirectoryRules:
    """Returns the rules in a directory that a link leads to. Raises Refused for one that holds the
    link, whose copy would hold itself.
    """
    real = entry.leads_to
    here = os.path.realpath(os.path.dirname(entry.path))  # a text in, a text out
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
    """The verdict about an entry. look_inside: whether a file may come back in from a directory
    that stays out. taken_back: whether the manifest includes it.
    """

    is_in: bool
    look_inside: bool = False
    taken_back: bool = False


def _judge_entry(
    relative: str,
    rules: CopyRules,
    below: _DirectoryRules,
    *,
    is_directory: bool,
) -> _Verdict:
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


def _by_git(
    relative: str,
    below: _DirectoryRules,
    *,
    is_directory: bool,
) -> bool | None:
    """Decides by the deepest file with a matching rule."""
    for base, ignored in reversed(below.git):
        path = relative[len(base) + 1 :] if base else relative
        decision = ignored.decide(path, is_directory=is_directory)
        if decision is not None:
            return decision
    return None


def _read_lines(path: Path) -> list[str]:
    """Returns the lines of an ignore file; [] without a readable one."""
    try:
        found = path.stat(follow_symlinks=False)
        if not stat.S_ISREG(found.st_mode) or found.st_size > IGNORE_BYTES_MAX:
            return []
        return path.read_text(encoding="utf-8-sig", errors="replace").splitlines()
    except OSError:
        return []


def leads_out(link: Entry, origin: Path) -> bool:
    """Returns whether a symlink leads to something that is not in the tree at `origin`; an absolute
    one does, as the tree lies elsewhere in a sandbox.
    """
    if Path(link.path).readlink().is_absolute():
        return True
    return not _is_within(os.path.realpath(link.path), os.path.realpath(origin))


def describe_unreadable(origin: Path, error: OSError) -> str:
    """Returns which file of a tree cannot be read, and why."""
    name = os.path.relpath(os.fsdecode(error.filename or origin), origin)
    return f"`{name}` cannot be read: {os.strerror(error.errno or 0).lower()}"
