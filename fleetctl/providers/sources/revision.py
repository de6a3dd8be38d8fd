"""What a directory holds, as one short text: equal for equal trees, whenever and wherever they are
looked at. Called when an object is applied, and where a copy of its source was taken.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from fleetctl.providers.sources.excludes import Excludes
from fleetctl.providers.sources.tree import Rules, stays_inside, walk
from specs.template import Source

# An apply waits for it, so it must be over in about a second; what is larger is not compared.
FILES_MAX = 20_000
BYTES_MAX = 256 << 20

_ALL = Rules(Excludes(()))


def of_source(source: Source) -> str:
    """Of what a copy taken now would hold; empty when it is too large, or cannot be read."""
    return _revision(Path(source.path or ""), Rules.of_project(source.exclude))


def of_copy(copy: Path) -> str:
    """Of a copy that was taken; as `of_source`."""
    return _revision(copy, _ALL)


def _revision(origin: Path, rules: Rules) -> str:
    lines: set[str] = set()
    size = 0
    try:
        if not origin.is_dir():
            return ""
        for count, (path, relative) in enumerate(walk(origin, rules)):
            if path.is_symlink():
                if stays_inside(path, origin):
                    lines |= {f"link {relative!r} {str(path.readlink())!r}", *_above(relative)}
            elif path.is_dir():
                lines |= {f"directory {relative!r}", *_above(relative)}
            elif path.is_file():
                size += path.stat().st_size
                if count > FILES_MAX or size > BYTES_MAX:
                    return ""
                lines |= {_file(path, relative), *_above(relative)}
    except OSError:
        return ""  # it changes under our eyes, or is not ours to read
    return "sha256:" + sha256("\n".join(sorted(lines)).encode()).hexdigest()


def _file(path: Path, relative: str) -> str:
    runs = "x" if path.stat().st_mode & 0o100 else "-"
    return f"file {relative!r} {runs} {sha256(path.read_bytes()).hexdigest()}"


def _above(relative: str) -> list[str]:
    """A file may come back in below a directory that stays out; a copy has the directory."""
    *parents, _top = Path(relative).parents
    return [f"directory {str(parent)!r}" for parent in parents]
