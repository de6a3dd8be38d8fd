"""All that must stand before a keeper starts: directories, the image's Python, the source.

Called by keepers.py through the provider, once a keeper. Slow parts run as child processes or
threads.
"""

from __future__ import annotations

from typing import Any

from fleetctl.providers.base import RunOrder
from fleetctl.providers.local import envs, sources
from fleetctl.providers.local.orders import Prepared, keeper_config
from fleetctl.providers.local.paths import Layout, keeper_name, make_private


async def prepare(layout: Layout, order: RunOrder, *, tier: str) -> tuple[str, dict[str, Any]]:
    """(interpreter of the keeper, its config). Raises Refused or Unavailable."""
    for mount in order.template.volumes:
        make_private(layout.volume(mount.name))
    make_private(layout.runs(order.uid))
    make_private(layout.work(order.uid))
    image = await envs.python_of(layout, order.template.image)
    keeper = make_private(layout.keeper(keeper_name(order.uid, order.template_hash)))
    source = await sources.fetch(layout, order.template.source, keeper)
    prepared = Prepared(
        python=image.python,
        expose=image.expose,
        source=str(source.directory) if source else None,
        source_name=source.name if source else "",
    )
    return image.python, keeper_config(layout, order, prepared, tier=tier)
