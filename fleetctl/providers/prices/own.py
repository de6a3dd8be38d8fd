"""What a person wants charged for a sandbox, by the `prices` of a Provider object. Pure."""

from __future__ import annotations

from fleetctl.common.text import HOUR_S
from fleetctl.providers.prices.table import dearest
from fleetctl.specs.blocks.resources import Resources
from fleetctl.specs.kinds.provider import Prices


def usd_per_s(prices: Prices, resources: Resources) -> float | None:
    """The price of one sandbox; None when it has a GPU that the person has not priced.

    Without any price of a GPU, `perHour` is the price of the whole machine. Of a list of GPUs it is
    the dearest that counts: nobody knows which one it will be.
    """
    wanted = resources.gpu
    if wanted is None or not prices.gpu:
        return prices.per_hour / HOUR_S
    each = {name.upper(): price for name, price in prices.gpu.items()}
    gpu = dearest(
        None if (price := each.get(it.name.upper())) is None else price * it.count
        for it in wanted.choices
    )
    return None if gpu is None else (prices.per_hour + gpu) / HOUR_S
