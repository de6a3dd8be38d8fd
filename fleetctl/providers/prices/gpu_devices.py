"""Finds the entries of a list of GPUs that a sandbox can have got, by the names of its driver's
devices.

Called by the engine once a run has reported them. Pure. In doubt it keeps an entry: a run is
charged by the dearest that is left, so that no doubt makes it cheaper than it was.
"""

from __future__ import annotations

from collections.abc import Sequence

from fleetctl.specs.blocks.resources import Gpu

ANY = "ANY"
# The GPUs that a provider may give instead of the requested one, at the price of the requested one
# (Modal's guide to GPUs, 2026-10); all other names are within their device's own, such as `NVIDIA
# A100 80GB PCIe`.
INSTEAD = {"H100": ("H200",), "B200+": ("B200", "B300"), "A10G": ("A10",)}
PINNED = "!"  # no other GPU replaces it


def possible_gpus(wanted: Gpu, devices: Sequence[str]) -> Gpu:
    """Returns the list with only those entries that such devices can stand for; all entries where
    no entry fits, or no device was reported.
    """
    fitting = [it for it in wanted.each if it.count == len(devices) and _stands_for(it, devices)]
    if not fitting:
        return wanted
    first, *others = fitting
    return first.model_copy(update={"otherwise": tuple(others)})


def _stands_for(wanted: Gpu, devices: Sequence[str]) -> bool:
    asked = wanted.name.upper()
    names = (asked.rstrip(PINNED), *INSTEAD.get(asked, ()))
    return asked == ANY or all(any(_is_named(name, it) for name in names) for it in devices)


def _is_named(name: str, device: str) -> bool:
    """Returns whether every part of `A100-80GB` is in `NVIDIA A100-SXM4-80GB`."""
    return all(part in device.upper() for part in name.split("-"))
