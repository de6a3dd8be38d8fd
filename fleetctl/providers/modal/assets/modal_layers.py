"""Recipes as images of the SDK: no server is called here. Called by modal_images.py.

All that is built here belongs to root, and so does what runs in it: Modal takes no notice of the
`USER` of an image.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.providers.pip_index import index_options, index_variables
from fleetctl.providers.remote.assets.recipes import CHECK_PYTHON, LocalPackage, Recipe
from fleetctl.providers.sources.tree_copy import CopyRules, walk_tree

if TYPE_CHECKING:
    import modal

GUEST_DIR = "/.fleetctl"


def base_image(recipe: Recipe) -> modal.Image:
    """The image of a recipe, lazy: it is built when the SDK loads it."""
    import modal

    if recipe.registry is None:
        image = modal.Image.debian_slim(python_version=recipe.python)
    else:
        image = modal.Image.from_registry(recipe.registry, add_python=recipe.python)
    if recipe.env:
        image = image.env(dict(recipe.env))
    if recipe.apt:
        image = image.apt_install(*recipe.apt)
    for package in recipe.packages:
        image = _with_package(image, package)
    wanted = (*(package.wanted for package in recipe.packages), *recipe.pip)
    if wanted:
        given: dict[str, str | None] = {**index_variables(recipe.index)}
        image = image.uv_pip_install(
            *wanted,
            extra_options=shlex.join(index_options(recipe.index)),
            secrets=[modal.Secret.from_dict(given)] if given else None,
        )
    if recipe.run:
        image = image.run_commands(*recipe.run)
    if recipe.must_have_python:
        image = image.run_commands(CHECK_PYTHON)
    # Modal puts an image's entrypoint in front of every command, ours too.
    return image.entrypoint([])


def _with_package(image: modal.Image, package: LocalPackage) -> modal.Image:
    path = Path(package.path)
    if path.is_file():
        return image.add_local_file(path, package.place, copy=True)
    wanted = {relative for _, relative in walk_tree(path, CopyRules.of_project(()))}
    return image.add_local_dir(
        path, package.place, copy=True, ignore=lambda one: one.as_posix() not in wanted
    )


@dataclass(frozen=True, slots=True)
class LocalDirectory:
    """A directory of this machine. without: relative paths of what is not uploaded."""

    path: Path
    without: frozenset[str] = frozenset()


def with_files(image: modal.Image, places: Mapping[str, LocalDirectory]) -> modal.Image:
    """Returns the image with directories of this machine, which join when a sandbox starts.

    places: directories by their path in the sandbox.
    """
    for place, directory in places.items():
        image = image.add_local_dir(directory.path, place, ignore=_ignore_names(directory.without))
    return image


def _ignore_names(names: frozenset[str]) -> Callable[[Path], bool]:
    """Ignores files by name. The SDK follows links to directories: their content has the link's
    name.
    """
    return lambda one: any(str(it) in names for it in (one, *one.parents))
