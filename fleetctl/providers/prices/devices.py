"""Which entries of a list of GPUs a sandbox can have got, by what its driver calls its devices.

Called by the engine once a run has told them. Pure. In doubt it keeps an entry: a run is charged by
the dearest that is left, so that no doubt makes it cheaper than it was.
"""

from __future__ import annotations

from collections.abc import Sequence

from fleetctl.specs.blocks.resources import Gpu

ANY = "ANY"
# What a provider may give in place of what was asked, at the price of what was asked (Modal's guide
# to GPUs, 2026-10); all other names are within their device's own, such as `NVIDIA A100 80GB PCIe`.
INSTEAD = {"H100": ("H200",), "B200+": ("B200", "B300"), "A10G": ("A10",)}
PINNED = "!"  # nothing is given in its place


def possible(wanted: Gpu, devices: Sequence[str]) -> Gpu:
    """The same list with those entries alone that such devices can stand for; all of them where
    none fits, or none was told.
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
    """Whether every part of `A100-80GB` is in `NVIDIA A100-SXM4-80GB`."""
    return all(part in device.upper() for part in name.split("-"))
