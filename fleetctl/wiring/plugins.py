"""Loads the plugin of each provider's package: found by its name in the table of specs/builtin.py,
or as an entry point of another project's package.

Light: lists come through here. Parts, and packages of others, are imported on request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, cast

from fleetctl.common.errors import Refused
from fleetctl.providers.contract.plugin import Caches, Plugin
from fleetctl.specs.builtin import SORTS, UnusableType, list_installed, plugin_from

if TYPE_CHECKING:
    from fleetctl.providers.contract.account import CheckResult


def plugin_of(sort: str) -> Plugin:
    """Returns the plugin of a type. Raises Refused where no usable package provides it."""
    if sort in SORTS:
        return cast(Plugin, import_module(f"fleetctl.providers.{sort}.plugin").PLUGIN)
    try:
        return cast(Plugin, plugin_from(sort))
    except UnusableType as error:
        raise Refused(error.what, hint=error.fix) from error


def check_packages() -> list[CheckResult]:
    """Returns a check of each provider type that an installed package of another project names:
    whether it can be used. Imports them.
    """
    from fleetctl.providers.contract.account import CheckResult

    found = []
    for it in list_installed():
        try:
            plugin_from(it.name)
        except UnusableType as error:
            found.append(CheckResult(it.name, "package", False, error.what, error.fix))
        else:
            found.append(CheckResult(it.name, "package", True, f"from {it.package}"))
    return found


def listed_bytes(
    sort: str,
    home: Path,
    volume: str,
) -> int | None:
    """Returns the bytes in a volume, where a list can afford the request; None elsewhere, and
    beyond its bounds.

    sort: of its provider; volume: its name there.
    """
    plugin = plugin_of(sort) if sort in SORTS else None
    if plugin is None or not plugin.listed_bytes:
        return None
    return cast(int | None, import_part(plugin.listed_bytes)(home, volume))


def find_left_files(
    sort: str,
    home: Path,
    uid: str,
    run: str,
) -> Path | None:
    """Returns the directory where an ended task began, with its files; None where its disk is gone
    too.

    sort: of its provider, as in an Account.
    """
    plugin = plugin_of(sort) if sort in SORTS else None
    if plugin is None or not plugin.kept:
        return None
    return cast(Path | None, import_part(plugin.kept)(home, uid, run))


def caches_of(home: Path) -> Mapping[str, Caches]:
    """Returns the caches of each provider on this machine, by its type."""
    found = {sort: plugin_of(sort).caches for sort in SORTS}
    return {sort: cast(Caches, import_part(where)(home)) for sort, where in found.items() if where}


def import_part(where: str) -> Callable[..., object]:
    """Imports the part that a row names. Raises ModuleNotFoundError where its SDK is not
    installed.
    """
    module, _, name = where.partition(":")
    return cast(Callable[..., object], getattr(import_module(module), name))
