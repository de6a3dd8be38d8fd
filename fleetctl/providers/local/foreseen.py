"""What provider `local` refuses, found out before anything is stored: images that this machine
cannot have, and GPUs that it lacks. Called by provider.py; asks this machine alone.
"""

from __future__ import annotations

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.providers.contract.base import Foreseen
from fleetctl.providers.local.assets import pythons, system
from fleetctl.providers.local.runs import gpus
from fleetctl.providers.sources import git
from fleetctl.providers.uv import find_uv
from fleetctl.specs.blocks.nodes import nodes_of
from fleetctl.specs.blocks.resources import Gpu
from fleetctl.specs.blocks.template import Image, Template


async def first(template: Template) -> Foreseen | None:
    if template.image is not None and (found := await _image(template.image)) is not None:
        return found
    if template.source is not None and template.source.git is not None:
        try:
            if template.source.git.lfs:
                git.check_lfs()
        except Refused as error:
            return Foreseen(("source", "git", "lfs"), str(error), error.hint)
    wanted = template.resources.gpu
    return None if wanted is None else await _gpu(wanted, nodes_of(template).min)


async def _image(image: Image) -> Foreseen | None:
    try:
        await system.check(image)
    except Refused as error:
        names = ("registry", "snapshot", "run", "apt")
        field = next(name for name in names if getattr(image, name))
        return Foreseen(("image", field), str(error), error.hint)
    except Unavailable:
        return None  # the start itself will ask again
    try:
        if image.python is not None:
            pythons.check(image.python)
        absent = image.python is not None and await pythons.here(image.python) is None
        if absent or image.pip:
            find_uv()
    except Refused as error:
        field = "python" if image.python is not None else "pip"
        return Foreseen(("image", field), str(error), error.hint)
    return None


async def _gpu(wanted: Gpu, nodes: int) -> Foreseen | None:
    """Why the GPUs here are too few; None when they are enough, or cannot be counted. Of a list,
    one sort will do, for all nodes of an attempt.
    """
    try:
        there = await gpus.devices() if gpus.perhaps_there() else []
    except Unavailable:
        return None
    short = []
    for one in wanted.choices:
        count = sum(gpus.is_sort(name, one) for name in there)
        if count >= one.count * nodes:
            return None
        each = f"{nodes} nodes need" if nodes > 1 else "needs"
        total = one.count * nodes
        short.append(f"{each} {total} x {one.name}, this machine has {count}")
    what = f"; it has {', '.join(sorted(set(there)))}" if there else ""
    hint = "place it on another provider, such as `placement: {provider: modal}`"
    field = ("resources", "gpu")
    return Foreseen(field, "; ".join(short) + what, hint, later=True, capacity=True)
