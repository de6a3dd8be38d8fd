"""What a person wants charged for a sandbox, by the `prices` of a Provider object. Pure."""

from __future__ import annotations

from fleetctl.common.text import HOUR_S
from fleetctl.providers.prices.table import dearest
from fleetctl.specs.blocks.kubernetes import ClusterSettings
from fleetctl.specs.blocks.prices import Prices, Rates
from fleetctl.specs.blocks.resources import Resources

GIB = 1024**3


def usd_per_s(
    prices: Prices, resources: Resources, cluster: ClusterSettings | None = None
) -> float | None:
    """The price of one sandbox; None when it is unknown, as of a GPU that the person has not
    priced.

    Where machines cost by a label of theirs, a sandbox costs what those cost that its `cluster`
    settings fix for it; else what the dearest of all that are listed costs, since only the
    scheduler will know which one it is.
    """
    if prices.node_label is None:
        return _by(prices, resources)
    gpu = resources.gpu.name if resources.gpu is not None else None
    settings = cluster or ClusterSettings()
    value = settings.label_of(prices.node_label, gpu)
    others: list[Rates] = [prices] if prices.say_anything else []
    if value is None:
        return dearest(_by(rates, resources) for rates in (*prices.nodes.values(), *others))
    rates = prices.nodes.get(value, prices)
    return _by(rates, resources) if rates is not prices or others else None


def _by(rates: Rates, resources: Resources) -> float | None:
    """USD a second on one sort of machine; None for a GPU that has no price there.

    Without any price of a GPU, `perHour` is the price of the whole machine. Of a list of GPUs it is
    the dearest that counts: nobody knows which one it will be. Where cores or memory have a price,
    what does not say how much of them it wants has none.
    """
    parts = _parts(rates, resources)
    if parts is None:
        return None
    wanted, base = resources.gpu, rates.per_hour + parts
    if wanted is None or not rates.gpu:
        return base / HOUR_S
    each = {name.upper(): price for name, price in rates.gpu.items()}
    gpu = dearest(
        None if (price := each.get(it.name.upper())) is None else price * it.count
        for it in wanted.choices
    )
    return None if gpu is None else (base + gpu) / HOUR_S


def _parts(rates: Rates, resources: Resources) -> float | None:
    """USD an hour of its cores and memory."""
    usd = 0.0
    for price, amount in (
        (rates.cpu, resources.cpu),
        (rates.memory, None if resources.memory is None else resources.memory / GIB),
    ):
        if price and amount is None:
            return None
        usd += price * (amount or 0.0)
    return usd
