"""`plan --resolve`: whether the packages that images list are there and go together, asked of their
index by uv on this machine. Called by plan.py.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

from fleetctl.common.errors import FleetctlError, Refused, Unavailable
from fleetctl.manifest.checks import works
from fleetctl.manifest.loader import Manifest
from fleetctl.manifest.messages import Finding
from fleetctl.manifest.problems import Problem
from fleetctl.providers.pip_index import login_of
from fleetctl.providers.uv import find_uv, resolve
from fleetctl.specs.blocks.template import Image

AT_ONCE = 4


def resolved(manifests: Sequence[Manifest]) -> tuple[list[Problem], list[str]]:
    """What would be refused at a build, and what nobody could tell. Raises Refused without uv."""
    found = [
        (it, at, image) for it in manifests for at, image in works.images(it.spec) if image.pip
    ]
    if not found:
        return [], []
    find_uv()
    # Equal images are asked for once.
    distinct = list(dict.fromkeys(image.model_dump_json() for _, _, image in found))
    errors = dict(zip(distinct, asyncio.run(_all([*map(_image, distinct)])), strict=True))
    problems: list[Problem] = []
    doubts: list[str] = []
    for manifest, at, image in found:
        error = errors[image.model_dump_json()]
        if isinstance(error, Unavailable):
            doubts.append(f"{manifest.key}: its packages cannot be looked up from here: {error}")
        elif error is not None:
            path = (*at, "pip")
            finding = Finding(path, path, f" cannot be installed: {error}", error.hint)
            problems += manifest.problems([finding])
    return problems, doubts


def _image(text: str) -> Image:
    image = Image.model_validate_json(text)
    index = image.pip_index
    if index is None or index.secret is None:
        return image
    # As `apply` would: from the shell of whoever asks.
    return image.model_copy(update={"pip_index": index.with_login(login_of(os.environ))})


async def _all(images: Sequence[Image]) -> list[FleetctlError | None]:
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(image: Image) -> FleetctlError | None:
        async with gate:
            try:
                await resolve(image)
            except (Refused, Unavailable) as error:
                return error
            return None

    return list(await asyncio.gather(*map(one, images)))
