"""Finds the Python of a version, uv, and the system packages that an image requires. Each candidate
is executed: a name on PATH may be a shim.

Called before a supervisor starts. System packages are only checked, never installed.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.providers.programs import run_program
from fleetctl.providers.uv import find_uv
from fleetctl.specs.blocks.template import Image

UV_S = 300.0  # it may download an interpreter
ASK_S = 10.0  # for an interpreter to print its version
# For an environment, the interpreter that it was made with.
_QUESTION = (
    "import sys; print('.'.join(map(str, sys.version_info[:3])),"
    " getattr(sys, '_base_executable', '') or sys.executable)"
)
OLDEST = (3, 9)  # the oldest that the guest and the supervisor support


@dataclass(frozen=True, slots=True)
class BasePython:
    """A Python of this machine with which environments are made, itself outside of any."""

    executable: str  # without symlinks: beside it its library is found
    version: str  # "3.11.7"

    @property
    def short(self) -> str:
        return ".".join(self.version.split(".")[:2])

    @property
    def facts(self) -> list[object]:
        """The facts that make an environment a different one; a patch of Python is not among
        them.
        """
        return [self.executable, self.short, sys.platform, os.uname().machine]


def own_python() -> BasePython:
    """The Python that runs fleetctl."""
    executable = getattr(sys, "_base_executable", "") or sys.executable
    return BasePython(os.path.realpath(executable), platform.python_version())


async def find_python(version: str) -> BasePython:
    """Returns an interpreter with that version. Raises Refused when there is none to be had."""
    check_version(version)
    if (base := await find_installed(version)) is not None:
        return base
    path = await _uv_find(version)
    if path is not None and (base := await _probe_candidate(path, version)) is not None:
        return base
    raise Refused(
        f"Python `{version}` is not on this machine, and uv cannot get it",
        hint=f"install it, for example with `uv python install {version}`, or change image.python",
    )


def check_version(version: str) -> None:
    """Raises Refused for one that no task can run under."""
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        raise Refused(
            f"image.python is `{version}`; provider `local` runs 3.9 and later",
            hint="ask for a newer version, or place the job on another provider",
        )


async def find_installed(version: str) -> BasePython | None:
    """Returns an interpreter with that version that this machine has without uv."""
    for candidate in _list_candidates(version):
        if (base := await _probe_candidate(candidate, version)) is not None:
            return base
    return None


def _list_candidates(version: str) -> list[str]:
    """Returns where a Python with that version may be: this one, PATH, pyenv."""
    short = ".".join(version.split(".")[:2])
    found = [sys.executable]
    for directory in os.environ.get("PATH", os.defpath).split(os.pathsep):
        path = Path(directory) / f"python{short}"
        if path.exists():
            found.append(str(path))
    root = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    found += [str(path) for path in sorted(root.glob(f"{short}.*/bin/python"), reverse=True)]
    return list(dict.fromkeys(found))


async def _probe_candidate(candidate: str, version: str) -> BasePython | None:
    """Returns the candidate's own facts if it runs and has that version."""
    try:
        answer = await run_program([candidate, "-I", "-c", _QUESTION], deadline_s=ASK_S)
    except OSError:  # also TimeoutError, which is one
        return None
    its_version, _, path = answer.out.decode("utf-8", "replace").strip().partition(" ")
    fits = its_version == version or its_version.startswith(version + ".")
    if answer.code == 0 and fits:
        return BasePython(os.path.realpath(path), its_version)
    return None


async def _uv_find(version: str) -> str | None:
    """Returns the Python that uv has, or downloads."""
    for arguments in (
        ["python", "find", version],
        ["python", "install", version],
        ["python", "find", version],
    ):
        try:
            answer = await run_program([find_uv(), "--quiet", *arguments], deadline_s=UV_S)
        except TimeoutError:
            return None
        path = answer.out.decode("utf-8", "replace").strip()
        if answer.code == 0 and path:
            return path
    return None


async def check_image(image: Image) -> None:
    """Raises Refused for what provider `local` cannot give."""
    if image.registry is not None:
        raise Refused(
            f"provider `local` has no container images, and image is `{image.registry}`",
            hint="list python, pip and apt under `image`, or place the job on another provider",
        )
    if image.snapshot is not None:
        raise Refused(
            f"image.snapshot is `{image.snapshot}`, and only provider `daytona` has snapshots",
            hint="list python, pip and apt under `image`, or place the job on `daytona`",
        )
    if image.run:
        raise Refused(
            "provider `local` runs no `image.run` commands: they would change this machine",
            hint="do what they do at the start of the task, or place the job on another provider",
        )
    missing = [name for name in image.apt if not await _is_installed(name)]
    if missing:
        raise Refused(
            f"image.apt packages are missing on this machine: {', '.join(missing)}",
            hint=f"sudo apt-get install {' '.join(missing)}",
        )


async def _is_installed(package: str) -> bool:
    """Returns whether a package is installed: by the package database, or without a database by a
    command with that name.
    """
    name = package.partition("=")[0]
    if name.startswith("-"):
        raise Refused(f"image.apt has `{package}`, which is not a package name", hint="remove it")
    query = shutil.which("dpkg-query")
    if query is None:
        return shutil.which(name) is not None
    try:
        answer = await run_program(
            [query, "--show", "--showformat=${db:Status-Status}", "--", name]
        )
    except TimeoutError as error:
        raise Unavailable(f"`{query}` does not answer") from error
    return answer.out.strip() == b"installed" or shutil.which(name) is not None
