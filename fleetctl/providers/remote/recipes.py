"""Describes an image as data: its key names builds, their logs and their cached results, and
several starts can wait for one build.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.manifest.files import fence
from fleetctl.manifest.files.fence import describe_error
from fleetctl.providers.sources.tree_copy import CopyRules, walk_tree
from fleetctl.specs.blocks.template import Image, PipIndex, Template
from fleetctl.specs.values.packages import LOCAL

DEFAULT_PYTHON = "3.12"  # the same wherever the controller runs
PIP_PLACE = "/.fleetctl-pip"  # where local packages lie in an image
# Printed by the build, once; without Python every sandbox would end as soon as it began.
NO_PYTHON = "the image has no python3 of 3.9 or newer"
CHECK_PYTHON = (
    "python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null ||"
    f" {{ echo '{NO_PYTHON}, which runs a task in Python, looks at checkpoints, carries calls of"
    " endpoints, keeps outputs, and reads values of wandb and `metrics`; install one in the image'"
    " >&2; exit 1; }"
)

PATIENCE_S = 20.0  # a start waits this long for a build, then makes room for other starts
RETRY_AFTER_S = 2.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LocalPackage:
    """A package that lies on this machine. place: its path in the image. wanted: the requirement to
    install.
    """

    path: str
    place: str
    wanted: str
    digest: str


@dataclass(frozen=True, slots=True)
class Recipe:
    """The layers of an image, from the base up."""

    registry: str | None
    python: str | None  # None with a registry image: its own version
    env: tuple[tuple[str, str], ...]  # before all else, so that every step sees it
    apt: tuple[str, ...]
    packages: tuple[LocalPackage, ...]
    pip: tuple[str, ...]
    run: tuple[str, ...]
    must_have_python: bool = False  # checked in the build, where the image brings its own Python
    index: PipIndex | None = None

    @property
    def key(self) -> str:
        """A name of the recipe that is the same for the same content, and fit for a file's name."""
        facts = [
            *(self.registry, self.python, self.env, self.apt, self.pip, self.run),
            self.must_have_python,
            [(package.wanted, package.digest) for package in self.packages],
            *([self.index.model_dump(mode="json", exclude={"secret"})] if self.index else []),
        ]
        return sha256(json.dumps(facts).encode()).hexdigest()[:16]

    @property
    def told(self) -> str:
        """Returns one line for messages; without env, which may hold private values."""
        parts = [self.registry or f"python {self.python}"]
        if self.registry and self.python:
            parts.append(f"python {self.python}")
        wheels = [package.wanted for package in self.packages]
        for name, words in (("apt", self.apt), ("pip", (*wheels, *self.pip))):
            if words:
                parts.append(f"{name} {' '.join(words)}")
        if self.run:
            parts.append(f"{len(self.run)} run command" + ("s" if len(self.run) > 1 else ""))
        return ", ".join(parts)


def build_recipe(template: Template) -> Recipe:
    """The image of a template. Raises Refused for a package that cannot be meant."""
    image = template.image or Image()
    if image.snapshot is not None:
        raise Refused(
            f"image.snapshot is `{image.snapshot}`, and only provider `daytona` has snapshots",
            hint="list what to install, or name an image of a registry",
        )
    pip, packages = _sorted_out(image)
    apt = image.apt
    git = template.source.git if template.source is not None else None
    if git is not None and image.registry is None:
        # The plain image has no git, and the source is cloned in the sandbox.
        lfs = ("git-lfs",) if git.lfs else ()
        apt = tuple(dict.fromkeys((*apt, "git", "ca-certificates", *lfs)))
    return Recipe(
        registry=image.registry,
        python=image.python or (None if image.registry else DEFAULT_PYTHON),
        env=tuple(image.env.items()),
        apt=apt,
        packages=packages,
        pip=pip,
        run=image.run,
        must_have_python=image.registry is not None and template.needs_python,
        index=image.pip_index,
    )


def _sorted_out(image: Image) -> tuple[tuple[str, ...], tuple[LocalPackage, ...]]:
    """Returns (requirements that an index answers, packages of this machine)."""
    listed: list[str] = []
    packages: list[LocalPackage] = []
    for entry in image.pip:
        if entry.startswith("-"):
            raise Refused(
                f"image.pip has `{entry}`, which is an option and no package",
                hint="list the requirements themselves, one an entry",
            )
        if entry.startswith((".", "~")):
            raise Refused(
                f"image.pip has `{entry}`, a path that does not begin at the root",
                hint="write the path from the root, such as `/home/me/dist/mine-1.0.whl`",
            )
        match = LOCAL.fullmatch(entry)
        if match is None:
            listed.append(entry)
        else:
            path = Path(match["path"])
            extras = match["extras"] or ""
            packages.append(_make_package(entry, path, extras, match["digest"]))
    return tuple(listed), tuple(packages)


def _make_package(
    entry: str,
    path: Path,
    extras: str,
    applied: str | None,
) -> LocalPackage:
    """Returns a local package with its digest. applied: the digest of the file when the manifest
    was applied, where that is known.
    """
    if not path.exists():
        raise Refused(
            f"image.pip has `{entry}`, and `{path}` is not there",
            hint="build it first, or name a package of the index",
        )
    digest = _path_digest(path)
    if applied not in (None, digest):
        raise Refused(
            f"image.pip has `{path}`, which is another file than the one that was applied",
            hint="apply the manifest again",
        )
    place = f"{PIP_PLACE}/{digest[:12]}/{path.name}"
    return LocalPackage(str(path), place, place + extras, digest)


def _path_digest(path: Path) -> str:
    """Returns the digest of a package file, or of the files that a copy of a package directory
    would have. Raises Refused if the path is no package.
    """
    total = sha256()
    try:
        if not path.is_dir():
            total.update(_read_content(path))
            return total.hexdigest()
        fence.check_inside(path)
        for found, relative in walk_tree(path, CopyRules.of_project(())):
            if found.is_file() and not found.is_symlink():
                total.update(f"{relative}\0{found.stat().st_size}\0".encode())
                total.update(_read_content(found.path))
    except OSError as error:
        raise Refused(
            f"image.pip has `{path}`, which cannot be read: {describe_error(error)}",
            hint="name a file or directory that holds a package",
        ) from error
    return total.hexdigest()


def _read_content(path: Path | str) -> bytes:
    with fence.open_regular(path) as file:
        return file.read()


def start_build(make: Coroutine[None, None, T]) -> asyncio.Task[T]:
    """Starts a build, whose error is kept for the next request: asyncio would log it as lost."""
    task = asyncio.ensure_future(make)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


def has_failed(task: asyncio.Task[T]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


async def await_build(task: asyncio.Task[T]) -> T:
    """Returns the result of a build's task, which goes on when this gives up, or when its caller
    does.
    """
    if not task.done():  # as it is for all runs of a resource but its first
        await asyncio.wait({task}, timeout=PATIENCE_S)
    if not task.done():
        raise Unavailable(
            "the image is being built",
            reason="Building",
            retry_after_s=RETRY_AFTER_S,
            hint="fleetctl logs --build KIND/NAME -f",
        )
    if task.cancelled():
        raise Unavailable("the provider is being closed")
    return task.result()
