"""Price tables and the cost of a sandbox by them: the packaged ones and a user's own, and the
entries of a list of GPUs that a sandbox can have got.

In doubt it keeps an entry: a run is charged by the dearest that is left, so that no doubt makes
it cheaper than it was.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from fleetctl.common.text import HOUR_S
from fleetctl.specs.blocks.kubernetes import ClusterSettings
from fleetctl.specs.blocks.placement import MachinePrices, Prices
from fleetctl.specs.blocks.resources import Gpu, Resources

GIB = 1 << 30
SANDBOX = "sandbox"
FUNCTION = "function"

ANY = "ANY"
# The GPUs that a provider may give instead of the requested one, at the price of the requested one
# (Modal's guide to GPUs, 2026-10); all other names are within their device's own, such as `NVIDIA
# A100 80GB PCIe`.
INSTEAD = {"H100": ("H200",), "B200+": ("B200", "B300"), "A10G": ("A10",)}
PINNED = "!"  # no other GPU replaces it


@dataclass(frozen=True, slots=True)
class PriceTable:
    """All prices in USD per second: of a core, a GiB of memory or disk, and a GPU."""

    provider: str
    updated: str  # the date of the prices, as YYYY-MM-DD; `live` from an account
    source: str  # where they were read
    runtimes: Mapping[str, Mapping[str, float]]  # sandbox | function -> cpu, memory, disk
    default: Mapping[str, float]  # cores and GiB of a sandbox without a request
    free: Mapping[str, float]  # GiB that are free
    gpu: Mapping[str, float]
    gpu_aliases: Mapping[str, str]

    def usd_per_s(self, resources: Resources, *, runtime: str = SANDBOX) -> float | None:
        """Returns the cost of a sandbox a second while it lives; None when a part has no known
        price.

        Providers bill the greater of request and use; this is the request. From a list of GPUs it
        is the dearest, as the one that it will be is unknown.
        """
        prices = self.runtimes.get(runtime)
        if not prices:
            return None
        gpu = self._gpu(resources)
        if gpu is None:
            return None
        amounts = {
            "cpu": resources.cpu if resources.cpu is not None else self.default["cpu"],
            "memory": self._gib("memory", resources.memory),
            "disk": self._gib("disk", resources.disk),
        }
        return gpu + sum(prices[name] * amount for name, amount in amounts.items())

    def _gib(self, name: str, size: int | None) -> float:
        asked = self.default[name] if size is None else size / GIB
        return max(0.0, asked - self.free.get(name, 0.0))

    def _gpu(self, resources: Resources) -> float | None:
        wanted = resources.gpu
        if wanted is None:
            return 0.0
        return highest_price(self._of_sort(it) for it in wanted.choices)

    def _of_sort(self, wanted: Gpu) -> float | None:
        name = wanted.name.upper()
        each = self.gpu.get(self.gpu_aliases.get(name, name))
        if each is None:
            return None
        return each * wanted.count


def highest_price(prices: Iterable[float | None]) -> float | None:
    """Returns the highest of the prices; None when a price is unknown: it may be the dearest."""
    known: list[float] = []
    for price in prices:
        if price is None:
            return None
        known.append(price)
    return max(known)


@cache
def load_prices(provider: str) -> PriceTable:
    """Returns the packaged table of a provider. Raises KeyError for a provider without a table."""
    path = files(__package__) / f"{provider}.json"
    if not path.is_file():
        raise KeyError(provider)
    return parse_prices(json.loads(path.read_text(encoding="utf-8")))


def parse_prices(data: Mapping[str, object]) -> PriceTable:
    """A table from the form of the packaged files."""
    return PriceTable(
        provider=str(data["provider"]),
        updated=str(data["updated"]),
        source=str(data["source"]),
        runtimes={name: _number_table(data[name]) for name in (SANDBOX, FUNCTION)},
        default=_number_table(data["default"]),
        free=_number_table(data["free"]),
        gpu=_number_table(data["gpu"]),
        gpu_aliases={str(k): str(v) for k, v in _as_mapping(data["gpuAliases"]).items()},
    )


def _number_table(value: object) -> dict[str, float]:
    return {str(key): float(number) for key, number in _as_mapping(value).items()}  # type: ignore[arg-type]


def _as_mapping(value: object) -> Mapping[object, object]:
    assert isinstance(value, Mapping)
    return value


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


def possible_gpus(wanted: Gpu, devices: Sequence[str]) -> Gpu:
    """Returns the list with only those entries that such devices can stand for; all entries where
    no entry fits, or no device was reported.
    """
    fitting = [
        it for it in wanted.each if it.count == len(devices) and _matches_devices(it, devices)
    ]
    if not fitting:
        return wanted
    first, *others = fitting
    return first.model_copy(update={"otherwise": tuple(others)})


def _matches_devices(wanted: Gpu, devices: Sequence[str]) -> bool:
    asked = wanted.name.upper()
    names = (asked.rstrip(PINNED), *INSTEAD.get(asked, ()))
    return asked == ANY or all(any(_is_named(name, it) for name in names) for it in devices)


def _is_named(name: str, device: str) -> bool:
    """Returns whether every part of `A100-80GB` is in `NVIDIA A100-SXM4-80GB`."""
    return all(part in device.upper() for part in name.split("-"))
