"""One row a provider: where each part of it is. The one table that names concrete providers.

Light: lists come through here. What is imported is imported when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, cast


class Plugin(NamedTuple):
    """One sort of provider: where each part of it is, as `module:name`, imported when it is needed.

    backend: built with (home, store_id=, notify=), a Backend; and with account= unless there is but
    one account of it.
    volume_files: with (home, account, store_id=), VolumeFiles; what `cp`, `ls` and `rm` reach
    without a controller. orphans: with (home, account), Strays. exec: with (home, account),
    Entering; how `exec`, `cp` and `port-forward` get in. check: a Check, for `doctor`.
    session: an OpenSession, for interpreters. kept: called with (home, uid, run), where a task's
    own files outlive it. listed_bytes: called with (home, volume), where it costs nearly nothing.
    """

    backend: str
    volume_files: str
    orphans: str
    exec: str
    check: str
    session: str
    kept: str = ""
    listed_bytes: str = ""
    one_account: bool = False


# Adding a provider: its package, a row here, and an extra of its name in pyproject.toml.
PLUGINS = {
    "local": Plugin(
        backend="fleetctl.providers.local.provider:LocalProvider",
        volume_files="fleetctl.providers.local.assets.volume_files:LocalFiles",
        orphans="fleetctl.providers.local.orphans:LocalStrays",
        exec="fleetctl.providers.local.runs.exec:LocalEntering",
        check="fleetctl.providers.local.check:check",
        session="fleetctl.providers.local.interpreter.session:open_session",
        kept="fleetctl.providers.local.runs.kept:kept",
        listed_bytes="fleetctl.providers.local.assets.sizes:listed_bytes",
        one_account=True,
    ),
    "modal": Plugin(
        backend="fleetctl.providers.modal.provider:ModalProvider",
        volume_files="fleetctl.providers.modal.assets.volume_files:ModalFiles",
        orphans="fleetctl.providers.modal.orphans:ModalStrays",
        exec="fleetctl.providers.modal.runs.exec:ModalEntering",
        check="fleetctl.providers.modal.check:check",
        session="fleetctl.providers.modal.interpreter.session:open_session",
    ),
    "daytona": Plugin(
        backend="fleetctl.providers.daytona.provider:DaytonaProvider",
        volume_files="fleetctl.providers.daytona.assets.volume_files:DaytonaFiles",
        orphans="fleetctl.providers.daytona.orphans:DaytonaStrays",
        exec="fleetctl.providers.daytona.runs.exec:DaytonaEntering",
        check="fleetctl.providers.daytona.check:check",
        session="fleetctl.providers.daytona.interpreter.session:open_session",
    ),
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
