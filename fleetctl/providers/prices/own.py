"""What a person wants charged for a sandbox, by the `prices` of a Provider object. Pure."""

from __future__ import annotations

from fleetctl.common.text import HOUR_S
from fleetctl.providers.prices.table import dearest
from fleetctl.specs.blocks.resources import Resources
from fleetctl.specs.kinds.provider import Prices

GIB = 1024**3


def usd_per_s(prices: Prices, resources: Resources) -> float | None:
    """The price of one sandbox; None when it has a GPU that the person has not priced.

    Without any price of a GPU, `perHour` is the price of the whole machine. Of a list of GPUs it is
    the dearest that counts: nobody knows which one it will be. Where cores or memory have a price,
    what does not say how much of them it wants has none.
    """
    parts = _parts(prices, resources)
    if parts is None:
        return None
    wanted, base = resources.gpu, prices.per_hour + parts
    if wanted is None or not prices.gpu:
        return base / HOUR_S
    each = {name.upper(): price for name, price in prices.gpu.items()}
    gpu = dearest(
        None if (price := each.get(it.name.upper())) is None else price * it.count
        for it in wanted.choices
    )
    return None if gpu is None else (base + gpu) / HOUR_S


def _parts(prices: Prices, resources: Resources) -> float | None:
    """USD an hour of its cores and memory."""
    usd = 0.0
    for price, amount in (
        (prices.cpu, resources.cpu),
        (prices.memory, None if resources.memory is None else resources.memory / GIB),
    ):
        if price and amount is None:
            return None
        usd += price * (amount or 0.0)
    return usd
