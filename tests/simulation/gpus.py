"""The GPUs of the simulated providers: what each costs, and which one of a list a run gets.

Used by the provider, which asks the price of the dearest, and by the world, which bills what it
gave.
"""

from __future__ import annotations

from zlib import crc32

from fleetctl.providers.contract.base import RunRequest
from fleetctl.specs.blocks.template import Template

# How many times as much as a sandbox without any.
FACTORS = {"T4": 1.0, "H100": 8.0}
DEVICES = {"T4": "Tesla T4", "H100": "NVIDIA H100 80GB HBM3"}


def listed(template: Template) -> list[str]:
    gpu = template.resources.gpu
    return [it.name for it in gpu.each] if gpu is not None else []


def dearest(template: Template) -> float:
    return max((FACTORS[it] for it in listed(template)), default=1.0)


def given(order: RunRequest) -> str:
    """One of its list, the same for each sandbox that is made for a run; empty without a list."""
    names = listed(order.template)
    return names[crc32(order.run.encode()) % len(names)] if names else ""


def told(order: RunRequest) -> tuple[str, ...]:
    """What the driver says; in one run of four it says nothing."""
    name = given(order)
    silent = crc32(order.run.encode()) // 2 % 4 == 0
    return () if silent or not name else (DEVICES[name],)
