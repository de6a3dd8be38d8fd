"""The plugin of each sort of provider, and what lists ask of it. The one place that goes from the
name of a provider to its package.

Light: lists come through here. What is imported is imported when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import cast

from fleetctl.providers.plugin import Plugin
from fleetctl.specs.builtin import BUILT_IN

PLUGINS: dict[str, Plugin] = {
    name: import_module(f"fleetctl.providers.{name}.plugin").PLUGIN for name in BUILT_IN
}


def listed_bytes(sort: str, home: Path, volume: str) -> int | None:
    """What is in a volume, where a list can afford to ask; None elsewhere, and beyond its bounds.

    sort: of its provider; volume: its name there.
    """
    plugin = PLUGINS.get(sort)
    if plugin is None or not plugin.listed_bytes:
        return None
    return cast(int | None, part(plugin.listed_bytes)(home, volume))


def kept_files(sort: str, home: Path, uid: str, run: str) -> Path | None:
    """Where an ended task began, with the files that it left; None where its disk went with it.

    sort: of its provider, as in an Account.
    """
    plugin = PLUGINS.get(sort)
    if plugin is None or not plugin.kept:
        return None
    return cast(Path | None, part(plugin.kept)(home, uid, run))


def part(where: str) -> Callable[..., object]:
    """What a row names, imported. Raises ModuleNotFoundError where its SDK is not installed."""
    module, _, name = where.partition(":")
    return cast(Callable[..., object], getattr(import_module(module), name))
