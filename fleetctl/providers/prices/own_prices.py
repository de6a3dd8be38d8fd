"""Computes a user's own price for a sandbox, by the `prices` of a Provider object. Pure."""

from __future__ import annotations

from fleetctl.common.text import HOUR_S
from fleetctl.providers.prices.price_table import highest_price
from fleetctl.specs.blocks.kubernetes import ClusterSettings
from fleetctl.specs.blocks.prices import MachinePrices, Prices
from fleetctl.specs.blocks.resources import Resources

GIB = 1024**3


def usd_per_s(
    prices: Prices,
    resources: Resources,
    cluster: ClusterSettings | None = None,
) -> float | None:
    """Returns the price of a sandbox; None when it is unknown, as for a GPU that the user has not
    priced.

    With prices by a label of nodes, the price is that of the nodes that the `cluster` settings
    select; else that of the dearest listed nodes, since the scheduler chooses among them.
    """
    if prices.node_label is None:
        return _machine_price(prices, resources)
    gpu = resources.gpu.name if resources.gpu is not None else None
    settings = cluster or ClusterSettings()
    value = settings.label_of(prices.node_label, gpu)
    others: list[MachinePrices] = [prices] if prices.say_anything else []
    if value is None:
        return highest_price(
            _machine_price(rates, resources) for rates in (*prices.nodes.values(), *others)
        )
    rates = prices.nodes.get(value, prices)
    if rates is not prices or others:
        return _machine_price(rates, resources)
    return None


def _machine_price(rates: MachinePrices, resources: Resources) -> float | None:
    """Returns the USD a second on one sort of machine; None for a GPU without a price there.

    Without any price of a GPU, `perHour` is the price of the whole machine. In a list of GPUs the
    dearest counts, since the chosen one is unknown. Where cores or memory have a price, resources
    without an amount of them have none.
    """
    parts = _hourly_parts(rates, resources)
    if parts is None:
        return None
    wanted = resources.gpu
    base = rates.per_hour + parts
    if wanted is None or not rates.gpu:
        return base / HOUR_S
    each = {name.upper(): price for name, price in rates.gpu.items()}
    gpu = highest_price(
        None if (price := each.get(it.name.upper())) is None else price * it.count
        for it in wanted.choices
    )
    if gpu is None:
        return None
    return (base + gpu) / HOUR_S


def _hourly_parts(rates: MachinePrices, resources: Resources) -> float | None:
    """Returns the USD an hour of cores and memory; None for an amount that is not set."""
    usd = 0.0
    for price, amount in (
        (rates.cpu, resources.cpu),
        (rates.memory, None if resources.memory is None else resources.memory / GIB),
    ):
        if price and amount is None:
            return None
        usd += price * (amount or 0.0)
    return usd
