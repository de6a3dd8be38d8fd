"""Finds what provider `local` refuses before an object is stored: images that this machine cannot
have, GPUs that it lacks, and paths that would hide the state directory. Called by
local_provider.py, which checks paths at a start as well; looks at this machine alone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.common.finding import Finding, Severity
from fleetctl.providers.contract.base import no_network, no_pods
from fleetctl.providers.local.assets import pythons
from fleetctl.providers.local.local_layout import COVERING_HINT, covering_mount
from fleetctl.providers.local.runs import gpu_claims
from fleetctl.providers.sources import git
from fleetctl.providers.uv import find_uv
from fleetctl.specs.blocks.nodes import nodes_of
from fleetctl.specs.blocks.resources import Gpu
from fleetctl.specs.blocks.template import Image, Template


async def find_obstacles(template: Template, home: Path) -> AsyncIterator[Finding]:
    """Yields what provider `local` cannot do for a template. home: the state directory,
    resolved.
    """
    if (hidden := covering_mount(template, home)) is not None:
        yield Finding(*hidden, COVERING_HINT)
    if template.network is not None:
        yield no_network("local")
    if template.kubernetes is not None:
        yield no_pods("local")
    if template.image is not None:
        async for it in _find_image_obstacles(template.image):
            yield it
    if template.source is not None and template.source.git is not None:
        try:
            if template.source.git.lfs:
                git.check_lfs()
        except Refused as error:
            yield Finding(("source", "git", "lfs"), str(error), error.hint)
    wanted = template.resources.gpu
    if wanted is not None:
        async for it in _find_gpu_obstacles(wanted, nodes_of(template).min):
            yield it


async def _find_image_obstacles(image: Image) -> AsyncIterator[Finding]:
    try:
        await pythons.check_image(image)
    except Refused as error:
        names = ("registry", "snapshot", "run", "apt")
        field = next(name for name in names if getattr(image, name))
        yield Finding(("image", field), str(error), error.hint)
    except Unavailable:
        return  # the start itself will ask again
    try:
        if image.python is not None:
            pythons.check_version(image.python)
        absent = image.python is not None and await pythons.find_installed(image.python) is None
        if absent or image.pip:
            find_uv()
    except Refused as error:
        field = "python" if image.python is not None else "pip"
        yield Finding(("image", field), str(error), error.hint)


async def _find_gpu_obstacles(wanted: Gpu, nodes: int) -> AsyncIterator[Finding]:
    """Yields why the GPUs here are too few, unless they are enough, or cannot be counted. From
    a list, one sort will do, for all nodes of an attempt.
    """
    try:
        there = await gpu_claims.list_devices() if gpu_claims.may_have_gpu() else []
    except Unavailable:
        return
    short = []
    for one in wanted.choices:
        count = sum(gpu_claims.is_sort(name, one) for name in there)
        if count >= one.count * nodes:
            return
        each = f"{nodes} nodes need" if nodes > 1 else "needs"
        total = one.count * nodes
        short.append(f"{each} {total} x {one.name}, this machine has {count}")
    what = f"; it has {', '.join(sorted(set(there)))}" if there else ""
    hint = "place it on another provider, such as `placement: {provider: modal}`"
    field = ("resources", "gpu")
    yield Finding(field, "; ".join(short) + what, hint, Severity.CAPACITY)
