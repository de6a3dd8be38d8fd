"""What a person wants charged for a sandbox, by the `prices` of a Provider object. Pure."""

from __future__ import annotations

from specs.provider import Prices
from specs.template import Resources

HOUR_S = 3600


def usd_per_s(prices: Prices, resources: Resources) -> float | None:
    """The price of one sandbox; None when it has a GPU that the person has not priced.

    Without any price of a GPU, `perHour` is the price of the whole machine.
    """
    wanted = resources.gpu
    if wanted is None or not prices.gpu:
        return prices.per_hour / HOUR_S
    each = {name.upper(): price for name, price in prices.gpu.items()}.get(wanted.name.upper())
    return None if each is None else (prices.per_hour + each * wanted.count) / HOUR_S
