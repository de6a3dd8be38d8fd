"""Checks the system packages that an image requires; never installs any. Called before a supervisor
starts.
"""

from __future__ import annotations

import shutil

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.providers.programs import run_program
from fleetctl.specs.blocks.template import Image


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
