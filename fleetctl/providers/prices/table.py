"""Price tables and what a sandbox costs by them. Pure but for reading the packaged files.

Called by providers for each run's price, and by whoever estimates before anything is started.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from fleetctl.specs.blocks.resources import Gpu, Resources

GIB = 1 << 30
SANDBOX, FUNCTION = "sandbox", "function"


@dataclass(frozen=True, slots=True)
class PriceTable:
    """All prices in USD per second: of one core, of one GiB of memory or disk, of one GPU."""

    provider: str
    updated: str  # the date of the prices, as YYYY-MM-DD; `live` from an account
    source: str  # where they were read
    runtimes: Mapping[str, Mapping[str, float]]  # sandbox | function -> cpu, memory, disk
    default: Mapping[str, float]  # cores and GiB of a sandbox that asks for none
    free: Mapping[str, float]  # GiB that cost nothing
    gpu: Mapping[str, float]
    gpu_aliases: Mapping[str, str]

    def usd_per_s(self, resources: Resources, *, runtime: str = SANDBOX) -> float | None:
        """What one sandbox costs a second while it lives; None when a part has no known price.

        Providers bill the greater of request and use; this is the request. Of a list of GPUs
        nobody knows which one it will be, so this is the dearest.
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
        return 0.0 if wanted is None else dearest(self._of_sort(it) for it in wanted.choices)

    def _of_sort(self, wanted: Gpu) -> float | None:
        name = wanted.name.upper()
        each = self.gpu.get(self.gpu_aliases.get(name, name))
        return None if each is None else each * wanted.count


def dearest(prices: Iterable[float | None]) -> float | None:
    """The highest of the prices; None when one of them is not known: it may be the dearest."""
    known: list[float] = []
    for price in prices:
        if price is None:
            return None
        known.append(price)
    return max(known)


@cache
def load(provider: str) -> PriceTable:
    """The packaged table of a provider. Raises KeyError for one that has none."""
    path = files(__package__) / f"{provider}.json"
    if not path.is_file():
        raise KeyError(provider)
    return parse(json.loads(path.read_text(encoding="utf-8")))


def parse(data: Mapping[str, object]) -> PriceTable:
    """A table from the form of the packaged files."""
    return PriceTable(
        provider=str(data["provider"]),
        updated=str(data["updated"]),
        source=str(data["source"]),
        runtimes={name: _numbers(data[name]) for name in (SANDBOX, FUNCTION)},
        default=_numbers(data["default"]),
        free=_numbers(data["free"]),
        gpu=_numbers(data["gpu"]),
        gpu_aliases={str(k): str(v) for k, v in _mapping(data["gpuAliases"]).items()},
    )


def _numbers(value: object) -> dict[str, float]:
    return {str(key): float(number) for key, number in _mapping(value).items()}  # type: ignore[arg-type]


def _mapping(value: object) -> Mapping[object, object]:
    assert isinstance(value, Mapping)
    return value
