"""Recipes as images of the SDK, with the guest in them: no server is called here. Called by
daytona_images.py.

All that is built here belongs to root, and so does what runs in it: an image of a registry may name
another user, without rights to install packages, and a Dockerfile cannot read that user to restore
it after. Modal does the same and ignores `USER`. A task for another user switches itself, as in `su
jovyan -c ...`, or starts from a snapshot, which is left as it is.
"""

from __future__ import annotations

import base64
import shlex
import shutil
import textwrap
from pathlib import Path

from fleetctl.common.errors import Refused
from fleetctl.guest.ship.assemble import posix_source, quick_source, recompile_source, remote_source
from fleetctl.providers.daytona.connection import sdk
from fleetctl.providers.daytona.runs.daytona_streams import IN_IMAGE
from fleetctl.providers.paths import make_private
from fleetctl.providers.pip_index import index_options
from fleetctl.providers.remote.assets.recipes import CHECK_PYTHON, LocalPackage, Recipe
from fleetctl.providers.sources.tree_copy import CopyRules, copy_tree

FORMAT = "2"  # of what this module makes; a change makes other snapshots
# From the SDK's `Image.debian_slim`, which refuses others; a test compares the two lists.
SLIM_SERIES = ("3.9", "3.10", "3.11", "3.12", "3.13")
LINE_CHARACTERS = 48_000  # builders refuse lines of more than 64 KiB


def build_image(recipe: Recipe, scratch: Path) -> sdk.Image:
    """scratch: where copies of local packages may lie until the image is built."""
    built = _base_image(recipe)
    if recipe.env:
        built = built.env(dict(recipe.env))
    if recipe.apt:
        names = " ".join(recipe.apt)
        built = built.run_commands(
            f"apt-get update && apt-get install -y --no-install-recommends {names}"
            " && rm -rf /var/lib/apt/lists/*"
        )
    for package in recipe.packages:
        built = _with_package(built, package, scratch)
    wanted = (*(package.wanted for package in recipe.packages), *recipe.pip)
    if wanted:
        built = built.pip_install(*wanted, extra_options=shlex.join(index_options(recipe.index)))
    if recipe.run:
        built = built.run_commands(*recipe.run)
    if recipe.must_have_python:
        built = built.run_commands(CHECK_PYTHON)
    return _with_guest(built).entrypoint(["sleep", "infinity"])


def _base_image(recipe: Recipe) -> sdk.Image:
    if recipe.registry is not None:
        if recipe.python is not None:
            raise Refused(
                f"image.python is `{recipe.python}` beside the registry image `{recipe.registry}`,"
                " and Daytona adds no Python to images",
                hint="name an image that has it",
            )
        return sdk.Image.base(recipe.registry).dockerfile_commands(["USER root"])
    version = recipe.python or ""
    if (recipe.pip or recipe.packages) and version in SLIM_SERIES:
        return sdk.Image.debian_slim(version)  # type: ignore[arg-type]  # with compilers
    return sdk.Image.base(f"python:{version}-slim-bookworm")


def _with_package(
    built: sdk.Image,
    package: LocalPackage,
    scratch: Path,
) -> sdk.Image:
    path = Path(package.path)
    if path.is_file():
        return built.add_local_file(path, package.place)
    copy = make_private(scratch) / package.digest[:16]
    shutil.rmtree(copy, ignore_errors=True)
    copy_tree(path, copy, CopyRules.of_project(()))
    return built.add_local_dir(copy, package.place)


def _with_guest(built: sdk.Image) -> sdk.Image:
    """The image with the guest, which is written as text of the commands: a build's context would
    need a store of its own.

    The guest in Python is compiled here, by the Python that will run it.
    """
    commands = [f"mkdir -p {IN_IMAGE}"]
    program = f"{IN_IMAGE}/recompile.py"
    files = {
        f"{IN_IMAGE}/guest.py": remote_source(compiled=False),
        f"{IN_IMAGE}/guest.sh": posix_source(),
        f"{IN_IMAGE}/quick.py": quick_source(),
        program: recompile_source(),
    }
    for path, text in files.items():
        commands += _write_file(path, text)
    commands.append(
        f"if command -v python3 >/dev/null; then python3 -I {program} {IN_IMAGE}/guest.py; fi"
        f" && rm {program}"
    )
    return built.run_commands(*commands)


def _write_file(path: str, text: str) -> list[str]:
    lines = textwrap.wrap(base64.b64encode(text.encode()).decode(), LINE_CHARACTERS)
    commands = [f"echo {line} | base64 -d >>{path}" for line in lines]
    return [f"rm -f {path}", *commands]
