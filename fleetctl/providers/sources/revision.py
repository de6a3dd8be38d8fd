"""What a directory holds, as one short text: equal for equal trees, whenever and wherever they are
looked at. Called when an object is applied or planned, and where a copy of its source was taken.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from fleetctl.providers.sources.apart import NOTHING_APART, Apart
from fleetctl.providers.sources.excludes import Excludes
from fleetctl.providers.sources.stats import MANIFEST, Stats
from fleetctl.providers.sources.tree import Rules, leads_out, unreadable, walk

# An apply waits for it, so it must be over in about a second; what is larger is not compared.
FILES_MAX = 20_000
BYTES_MAX = 256 << 20
APART = "apart "  # in front of the digest of a file that is none of the program

_ALL = Rules(Excludes(()))


@dataclass(frozen=True, slots=True)
class Tree:
    """revision: of the program; empty when it is too large to compare, or cannot be read. copy: the
    same of all that a copy holds. files: relative path -> digest of what it is; links too. outside:
    links that lead out of it, which no copy has. problem: which file cannot be read, and why.
    """

    revision: str = ""
    copy: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    outside: tuple[str, ...] = ()
    problem: str = ""


def of_project(
    origin: Path,
    exclude: tuple[str, ...],
    stats: Stats | None = None,
    apart: Apart = NOTHING_APART,
    *,
    follow: bool = False,
) -> Tree:
    """What a copy taken now would hold. stats: digests of files that were read before. Raises
    Refused for a link that cannot be followed.
    """
    return _tree(origin, Rules.of_project(exclude, follow=follow), stats or Stats(), apart)


def of_copy(copy: Path, apart: Apart = NOTHING_APART) -> Tree:
    """What a copy holds that was taken; as `of_project`."""
    return _tree(copy, _ALL, Stats(), apart)


@dataclass(slots=True)
class _Listing:
    """What a walk has found so far."""

    files: dict[str, str] = field(default_factory=dict)
    directories: set[str] = field(default_factory=set)
    outside: list[str] = field(default_factory=list)

    def tree(self) -> Tree:
        program = {name: it for name, it in self.files.items() if not it.startswith(APART)}
        # A directory that has nothing but what is apart came with that.
        empty = self.directories - set(_parents(self.files))
        revision = copy = _digest(program, empty)
        if len(program) < len(self.files):
            whole = {name: it.removeprefix(APART) for name, it in self.files.items()}
            copy = _digest(whole, empty)
        return Tree(revision, copy, self.files, tuple(self.outside))


def _tree(origin: Path, rules: Rules, stats: Stats, apart: Apart) -> Tree:
    found, size = _Listing(), 0
    try:
        if not origin.is_dir():
            return Tree()
        for count, (entry, relative) in enumerate(walk(origin, rules)):
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
                    return Tree()
                digest = stats.digest(entry, relative, looks)
                manifest = digest.endswith(MANIFEST)
                runs = "x" if looks.st_mode & 0o100 else "-"
                held = f"file {runs} {digest.removesuffix(MANIFEST)}"
                if apart.has(relative, looks, manifest=manifest):
                    held = APART + held
                found.files[relative] = held
    except (FileNotFoundError, NotADirectoryError):
        return Tree()  # it changes under our eyes
    except OSError as error:
        return Tree(problem=unreadable(origin, error))
    return found.tree()


def _parents(names: Iterable[str]) -> Iterable[str]:
    """All directories that these lie in, some of them twice; a file may come back in below one that
    stays out, and a copy has that directory.
    """
    for name in names:
        while name := posixpath.dirname(name):
            yield name


def _digest(files: Mapping[str, str], empty: Collection[str]) -> str:
    """empty: directories without a file; those with one are known by it."""
    lines = [f"{relative!r} {held}" for relative, held in files.items()]
    lines += [f"{it!r} directory" for it in {*empty, *_parents((*files, *empty))}]
    return f"sha256:{sha256(chr(10).join(sorted(lines)).encode()).hexdigest()}"
