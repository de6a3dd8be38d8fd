"""The one file that names concrete stores and providers. Imported by cli; each import happens when
it is needed.

Adding a provider: its package under providers/, one line in PROVIDERS, and an extra in
pyproject.toml.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import cast

from fleetctl.clock import Clock
from fleetctl.errors import Refused
from fleetctl.providers.base import Backend, Notify
from fleetctl.providers.entering import Entering
from fleetctl.providers.findings import Check, Finding
from fleetctl.providers.session import OpenSession, Session, SessionOrder
from fleetctl.providers.strays import Strays
from fleetctl.providers.volumefiles import VolumeFiles
from fleetctl.stores.base import Store

Make = Callable[..., Backend]

# name -> module:factory, called with (home, store_id=, notify=)
PROVIDERS = {
    "local": "fleetctl.providers.local.provider:LocalProvider",
    "modal": "fleetctl.providers.modal.provider:ModalProvider",
    "daytona": "fleetctl.providers.daytona.provider:DaytonaProvider",
}

# name -> module:class, VolumeFiles built with (home); what `cp`, `ls` and `rm` reach without a
# controller
VOLUME_FILES = {
    "local": "fleetctl.providers.local.files:LocalFiles",
    "modal": "fleetctl.providers.modal.files:ModalFiles",
    "daytona": "fleetctl.providers.daytona.files:DaytonaFiles",
}

# name -> module:class, Strays built with (home); what `orphans` reaches without a controller
STRAYS = {
    "local": "fleetctl.providers.local.strays:LocalStrays",
    "modal": "fleetctl.providers.modal.strays:ModalStrays",
    "daytona": "fleetctl.providers.daytona.strays:DaytonaStrays",
}

# name -> module:class, Entering built with (home); how `exec`, `cp` and `port-forward` get in
ENTERING = {
    "local": "fleetctl.providers.local.entering:LocalEntering",
    "modal": "fleetctl.providers.modal.entering:ModalEntering",
    "daytona": "fleetctl.providers.daytona.entering:DaytonaEntering",
}

# name -> module:function, a Check
CHECKS = {
    "local": "fleetctl.providers.local.check:check",
    "modal": "fleetctl.providers.modal.check:check",
    "daytona": "fleetctl.providers.daytona.check:check",
}

# name -> module:function, an OpenSession; the extra of pyproject.toml has the provider's name
SESSIONS = {
    "local": "fleetctl.providers.local.session:open_session",
    "modal": "fleetctl.providers.modal.session:open_session",
    "daytona": "fleetctl.providers.daytona.session:open_session",
}


def open_store(home: Path, clock: Clock) -> Store:
    """Become the writer of the store below `home`. Raises StoreError when another one is."""
    from fleetctl.stores.sqlite import open_store as open_sqlite

    return open_sqlite(home, clock)


def build_providers(home: Path, *, store_id: str, notify: Notify) -> dict[str, Backend]:
    """Every provider that is built in, by name."""
    providers: dict[str, Backend] = {}
    for name, where in PROVIDERS.items():
        module, _, factory = where.partition(":")
        make = cast(Make, getattr(import_module(module), factory))
        providers[name] = make(home, store_id=store_id, notify=notify)
    return providers


def volume_files(provider: str, home: Path) -> VolumeFiles:
    """The files of a provider's volumes. Raises Refused where there are none to be reached."""
    if provider not in VOLUME_FILES:
        raise Refused(
            f"the files of volumes on provider `{provider}` cannot be reached",
            hint="run a task that mounts the volume",
        )
    module, _, name = VOLUME_FILES[provider].partition(":")
    return cast(VolumeFiles, getattr(import_module(module), name)(home))


def strays_of(provider: str, home: Path) -> Strays:
    """What a provider knows of sandboxes that nobody may remember."""
    module, _, name = STRAYS[provider].partition(":")
    return cast(Strays, getattr(import_module(module), name)(home))


def entering(provider: str, home: Path) -> Entering:
    """The way into sandboxes of a provider. Raises Refused where there is none."""
    if provider not in ENTERING:
        known = ", ".join(f"`{name}`" for name in sorted(ENTERING))
        raise Refused(
            f"sandboxes on provider `{provider}` cannot be entered",
            hint=f"those on {known} can",
        )
    module, _, name = ENTERING[provider].partition(":")
    return cast(Entering, getattr(import_module(module), name)(home))


async def check_providers(home: Path) -> list[Finding]:
    """What every provider says of this machine and its account; all are asked at once."""
    checks: list[Check] = []
    for where in CHECKS.values():
        module, _, name = where.partition(":")
        checks.append(cast(Check, getattr(import_module(module), name)))
    found = await asyncio.gather(*(check(home) for check in checks))
    return [finding for findings in found for finding in findings]


async def open_session(provider: str, home: Path, order: SessionOrder) -> Session:
    """A session of an interpreter. Raises Refused or Unavailable; then no sandbox is left."""
    if provider not in SESSIONS:
        known = ", ".join(f"`{name}`" for name in sorted(SESSIONS))
        raise Refused(
            f"`{provider}` is no provider that interpreters run on; there is {known}",
            hint="pass provider=... or set FLEETCTL_PROVIDER",
        )
    module, _, function = SESSIONS[provider].partition(":")
    try:
        open_there = cast(OpenSession, getattr(import_module(module), function))
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "fleetctl":
            raise
        raise Refused(
            f"provider `{provider}` needs the package `{error.name}`, which is not installed",
            hint=f"pip install 'fleetctl[{provider}]'",
        ) from error
    return await open_there(home, order)
