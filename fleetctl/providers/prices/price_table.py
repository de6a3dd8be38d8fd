"""Price tables and the cost of a sandbox by them. Pure, except that it reads the packaged files.

Called by providers for each run's price, and by estimates before a run is started.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from fleetctl.specs.blocks.resources import Gpu, Resources

GIB = 1 << 30
SANDBOX = "sandbox"
FUNCTION = "function"


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
