"""The nodes of the simulated attempts: how many of those asked for a run gets, and how they are
told. Used by the provider's world, which bills all of them.
"""

from __future__ import annotations

from zlib import crc32

from fleetctl.controllers.model import Node
from fleetctl.providers.contract.base import RunRequest

NODES_MAX = 4


def given(order: RunRequest) -> int:
    """The same whenever the order comes."""
    least, most = order.nodes.min, order.nodes.max
    return least + crc32(order.run.encode()) % (most - least + 1)


def told(order: RunRequest) -> tuple[Node, ...]:
    """Of one node nothing is said."""
    return (Node("Running"),) * given(order) if order.nodes.max > 1 else ()
