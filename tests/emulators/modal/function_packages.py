"""The SDK and what it needs, for function containers: what the real service adds to every one.

Nothing else that is installed beside the emulator is visible in a container.
"""

from __future__ import annotations

import os
import re
import shutil
from importlib import metadata
from pathlib import Path


def client_packages(directory: Path) -> Path:
    """A directory to put on the path of imports; made once. Its files are links to the installed
    ones where the file system has such, compiled files included."""
    target = directory / "pkg"
    if target.exists():
        return target
    building = directory / "pkg.building"
    for name in sorted(_closure("modal", set())):
        distribution = metadata.distribution(name)
        for file in distribution.files or []:
            source = Path(str(distribution.locate_file(file)))
            if ".." in file.parts or not source.is_file():
                continue
            place = building.joinpath(*file.parts)
            place.parent.mkdir(parents=True, exist_ok=True)
            _link(source, place)
    building.rename(target)
    return target


def _closure(name: str, found: set[str]) -> set[str]:
    """The distributions that `name` needs here, itself included."""
    found.add(name)
    for requirement in metadata.requires(name) or []:
        needed, _, marker = requirement.partition(";")
        bare = re.match(r"[A-Za-z0-9._-]+", needed)
        assert bare is not None, f"`{requirement}` is no requirement"
        other = re.sub(r"[-_.]+", "-", bare[0]).lower()
        if "extra" not in marker and other not in found and _is_installed(other):
            _closure(other, found)
    return found


def _is_installed(name: str) -> bool:
    """What is for another platform or Python is not."""
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _link(source: Path, place: Path) -> None:
    try:
        os.link(source, place)
    except OSError:  # another file system
        shutil.copyfile(source, place)
