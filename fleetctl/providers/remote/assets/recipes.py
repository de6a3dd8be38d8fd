"""What an image is made of, as data: its key names builds, their logs and what is remembered. Pure,
but for reading the local packages that an image installs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from fleetctl.common.errors import Refused
from fleetctl.providers.sources.tree import Rules, walk
from fleetctl.specs.blocks.template import Image, PipIndex, Template
from fleetctl.specs.values.packages import LOCAL

DEFAULT_PYTHON = "3.12"  # the same wherever the controller runs
PIP_PLACE = "/.fleetctl-pip"  # where local packages lie in an image
# Told by the build, once; without Python every sandbox would end as soon as it began.
NO_PYTHON = "the image has no python3 of 3.9 or newer"
CHECK_PYTHON = (
    "python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null ||"
    f" {{ echo '{NO_PYTHON}, which runs a task in Python, looks at checkpoints, carries calls of"
    " endpoints, and reads what others tell wandb or their `metrics`; install one in the image'"
    " >&2; exit 1; }"
)


@dataclass(frozen=True, slots=True)
class Package:
    """A package that lies on this machine; `place` is where it goes, `wanted` what is installed."""

    path: str
    place: str
    wanted: str
    digest: str


@dataclass(frozen=True, slots=True)
class Recipe:
    """The layers of an image, from the base up."""

    registry: str | None
    python: str | None  # None with a registry image: the one that it has
    env: tuple[tuple[str, str], ...]  # before all else, so that every step sees it
    apt: tuple[str, ...]
    packages: tuple[Package, ...]
    pip: tuple[str, ...]
    run: tuple[str, ...]
    must_have_python: bool = False  # checked when it is built, where nobody put one in
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
        """One line for people; without env, which may hold what is nobody's business."""
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


def recipe(template: Template) -> Recipe:
    """The image of a template. Raises Refused for a package that cannot be meant."""
    image = template.image or Image()
    if image.snapshot is not None:
        raise Refused(
            f"image.snapshot is `{image.snapshot}`, and only provider `daytona` has snapshots",
            hint="say what to install, or name an image of a registry",
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


def _sorted_out(image: Image) -> tuple[tuple[str, ...], tuple[Package, ...]]:
    """(requirements that an index answers, packages of this machine)."""
    listed: list[str] = []
    packages: list[Package] = []
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
            path, extras = Path(match["path"]), match["extras"] or ""
            packages.append(_package(entry, path, extras, match["digest"]))
    return tuple(listed), tuple(packages)


def _package(entry: str, path: Path, extras: str, applied: str | None) -> Package:
    """applied: the digest of the file when the manifest was applied, where that is known."""
    if not path.exists():
        raise Refused(
            f"image.pip has `{entry}`, and `{path}` is not there",
            hint="build it first, or name a package of the index",
        )
    digest = _digest(path)
    if applied not in (None, digest):
        raise Refused(
            f"image.pip has `{path}`, which is another file than the one that was applied",
            hint="apply the manifest again",
        )
    place = f"{PIP_PLACE}/{digest[:12]}/{path.name}"
    return Package(str(path), place, place + extras, digest)


def _digest(path: Path) -> str:
    """The digest of a file, or of all files of a directory that a copy would have."""
    total = sha256()
    if path.is_file():
        total.update(path.read_bytes())
        return total.hexdigest()
    for found, relative in walk(path, Rules.of_project(())):
        if found.is_file() and not found.is_symlink():
            total.update(f"{relative}\0{found.stat().st_size}\0".encode())
            total.update(Path(found.path).read_bytes())
    return total.hexdigest()
