"""What each provider's package says of itself: found by its name in the table of specs/builtin.py.

Light: lists come through here. What is imported is imported when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import cast

from fleetctl.providers.contract.caches import Caches
from fleetctl.providers.contract.plugin import Plugin
from fleetctl.specs.builtin import SORTS


def plugin_of(sort: str) -> Plugin:
    """sort: one of those that are built in."""
    return cast(Plugin, import_module(f"fleetctl.providers.{sort}.plugin").PLUGIN)


def listed_bytes(sort: str, home: Path, volume: str) -> int | None:
    """What is in a volume, where a list can afford to ask; None elsewhere, and beyond its bounds.

    sort: of its provider; volume: its name there.
    """
    plugin = plugin_of(sort) if sort in SORTS else None
    if plugin is None or not plugin.listed_bytes:
        return None
    return cast(int | None, part(plugin.listed_bytes)(home, volume))


def kept_files(sort: str, home: Path, uid: str, run: str) -> Path | None:
    """Where an ended task began, with the files that it left; None where its disk went with it.

    sort: of its provider, as in an Account.
    """
    plugin = plugin_of(sort) if sort in SORTS else None
    if plugin is None or not plugin.kept:
        return None
    return cast(Path | None, part(plugin.kept)(home, uid, run))


def caches_of(home: Path) -> Mapping[str, Caches]:
    """What each provider keeps on this machine, by its type."""
    found = {sort: plugin_of(sort).caches for sort in SORTS}
    return {sort: cast(Caches, part(where)(home)) for sort, where in found.items() if where}


def part(where: str) -> Callable[..., object]:
    """What a row names, imported. Raises ModuleNotFoundError where its SDK is not installed."""
    module, _, name = where.partition(":")
    return cast(Callable[..., object], getattr(import_module(module), name))
