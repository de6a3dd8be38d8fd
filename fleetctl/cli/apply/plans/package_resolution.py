"""`plan --resolve`: checks with uv, on this machine and against their index, that the packages of
images exist and are compatible. Called by plan.py.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

from fleetctl.common.errors import FleetctlError, Refused, Unavailable
from fleetctl.common.finding import Finding
from fleetctl.manifest.checks import spec_parts
from fleetctl.manifest.loader import Manifest
from fleetctl.manifest.problems import ManifestProblem
from fleetctl.providers.uv import check_packages, find_uv, login_of
from fleetctl.specs.blocks.template import Image

AT_ONCE = 4


def resolve_packages(manifests: Sequence[Manifest]) -> tuple[list[ManifestProblem], list[str]]:
    """Returns the errors of a build, and warnings on images without a result. Raises Refused
    without uv."""
    found = [
        (it, at, image)
        for it in manifests
        for at, image in spec_parts.list_images(it.spec)
        if image.pip
    ]
    if not found:
        return [], []
    find_uv()
    # Equal images are resolved once.
    distinct = list(dict.fromkeys(image.model_dump_json() for _, _, image in found))
    errors = dict(
        zip(distinct, asyncio.run(_resolve_all([*map(_parse_image, distinct)])), strict=True)
    )
    problems: list[ManifestProblem] = []
    doubts: list[str] = []
    for manifest, at, image in found:
        error = errors[image.model_dump_json()]
        if isinstance(error, Unavailable):
            doubts.append(f"{manifest.key}: its packages cannot be looked up from here: {error}")
        elif error is not None:
            path = (*at, "pip")
            finding = Finding(path, f" cannot be installed: {error}", error.hint)
            problems += manifest.problems([finding])
    return problems, doubts


def _parse_image(text: str) -> Image:
    image = Image.model_validate_json(text)
    index = image.pip_index
    if index is None or index.secret is None:
        return image
    # As `apply` does: from the user's shell.
    return image.model_copy(update={"pip_index": index.with_login(login_of(os.environ))})


async def _resolve_all(images: Sequence[Image]) -> list[FleetctlError | None]:
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(image: Image) -> FleetctlError | None:
        async with gate:
            try:
                await check_packages(image)
            except (Refused, Unavailable) as error:
                return error
            return None

    return list(await asyncio.gather(*map(one, images)))
