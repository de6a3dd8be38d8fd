"""The one file that names concrete stores and providers. Imported by cli; each import happens when
it is needed.

Adding a provider: its package under providers/, one line in PROVIDERS, and an extra in
pyproject.toml. Of each there may be several accounts, each a backend with a client of its own.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import cast

from fleetctl.clock import Clock
from fleetctl.errors import Refused
from fleetctl.providers.account import Account, Lookup, account_of, built_in
from fleetctl.providers.base import Backend, Notify
from fleetctl.providers.entering import Entering
from fleetctl.providers.findings import Check, Finding
from fleetctl.providers.session import OpenSession
from fleetctl.providers.strays import Strays
from fleetctl.providers.volumefiles import VolumeFiles
from fleetctl.stores.base import Store

Make = Callable[..., Backend]

# name -> module:factory, called with (home, store_id=, notify=), and account= of a declared one
PROVIDERS = {
    "local": "fleetctl.providers.local.provider:LocalProvider",
    "modal": "fleetctl.providers.modal.provider:ModalProvider",
    "daytona": "fleetctl.providers.daytona.provider:DaytonaProvider",
}

# name -> module:class, VolumeFiles built with (home, account, store_id); what `cp`, `ls` and `rm`
# reach without a controller
VOLUME_FILES = {
    "local": "fleetctl.providers.local.files:LocalFiles",
    "modal": "fleetctl.providers.modal.files:ModalFiles",
    "daytona": "fleetctl.providers.daytona.files:DaytonaFiles",
}

# name -> module:class, Strays built with (home, account); what `orphans` reaches without a
# controller
STRAYS = {
    "local": "fleetctl.providers.local.strays:LocalStrays",
    "modal": "fleetctl.providers.modal.strays:ModalStrays",
    "daytona": "fleetctl.providers.daytona.strays:DaytonaStrays",
}

# name -> module:class, Entering built with (home, account); how `exec`, `cp` and `port-forward`
# get in
ENTERING = {
    "local": "fleetctl.providers.local.entering:LocalEntering",
    "modal": "fleetctl.providers.modal.entering:ModalEntering",
    "daytona": "fleetctl.providers.daytona.entering:DaytonaEntering",
}

# name -> module:function, called with (home, uid, run); where a task's own files outlive it
KEPT = {"local": "fleetctl.providers.local.kept:kept"}

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


class Accounts:
    """The providers of one process: those that are built in, and one for each further account.

    environ: where their credentials are looked up; the environment of this process, unless somebody
    else's shell is asked too.
    """

    def __init__(
        self, home: Path, *, store_id: str, notify: Notify, environ: Lookup = os.environ.get
    ) -> None:
        self._home, self._store_id, self._notify = home, store_id, notify
        self._environ = environ
        self._now = {name: built_in(name) for name in PROVIDERS}
        self.backends = {name: self._made(name) for name in PROVIDERS}

    def open(self, name: str, spec: Mapping[str, object]) -> Backend:
        """The backend of a Provider object, whose account is from now on what the spec says. Talks
        to nobody.
        """
        self._now[name] = account_of(name, spec, self._environ)
        if name not in self.backends:
            self.backends[name] = self._made(name)
        return self.backends[name]

    def restore(self, name: str) -> None:
        """Of a provider that is built in nothing is said any more."""
        self._now[name] = built_in(name)

    def strays(self, name: str) -> Strays:
        """What a provider of this process knows of sandboxes that nobody may remember."""
        return strays_of(self._now[name], self._home)

    async def close(self) -> None:
        for backend in self.backends.values():
            await backend.close()

    def _made(self, name: str) -> Backend:
        account = self._now[name]
        module, _, factory = PROVIDERS[account.sort].partition(":")
        make = cast(Make, getattr(import_module(module), factory))
        if account.sort == "local":
            return make(self._home, store_id=self._store_id, notify=self._notify)
        return make(
            self._home,
            store_id=self._store_id,
            notify=self._notify,
            account=lambda: self._now[name],
        )


def build_providers(home: Path, *, store_id: str, notify: Notify) -> dict[str, Backend]:
    """Every provider that is built in, by name."""
    return Accounts(home, store_id=store_id, notify=notify).backends


def volume_files(account: Account, home: Path) -> VolumeFiles:
    """The files of a provider's volumes."""
    from fleetctl.stores.reader import Reader

    with Reader(home) as reader:
        store_id = reader.store_id()
    module, _, name = VOLUME_FILES[account.sort].partition(":")
    built = getattr(import_module(module), name)(home, account, store_id=store_id)
    return cast(VolumeFiles, built)


def kept_files(sort: str, home: Path, uid: str, run: str) -> Path | None:
    """Where an ended task began, with the files that it left; None where its disk went with it.

    sort: of its provider, as in an Account.
    """
    if sort not in KEPT:
        return None
    module, _, name = KEPT[sort].partition(":")
    return cast(Callable[..., Path | None], getattr(import_module(module), name))(home, uid, run)


def strays_of(account: Account, home: Path) -> Strays:
    """What a provider knows of sandboxes that nobody may remember."""
    module, _, name = STRAYS[account.sort].partition(":")
    return cast(Strays, getattr(import_module(module), name)(home, account))


def entering(account: Account, home: Path) -> Entering:
    """The way into sandboxes of a provider."""
    module, _, name = ENTERING[account.sort].partition(":")
    return cast(Entering, getattr(import_module(module), name)(home, account))


async def check_providers(home: Path, accounts: Sequence[Account]) -> list[Finding]:
    """What each provider says of this machine and its account; all are asked at once."""
    checks: list[Check] = []
    for account in accounts:
        module, _, name = CHECKS[account.sort].partition(":")
        checks.append(cast(Check, getattr(import_module(module), name)))
    asked = (check(home, account) for check, account in zip(checks, accounts, strict=True))
    return [finding for findings in await asyncio.gather(*asked) for finding in findings]


def session_opener(provider: str) -> OpenSession:
    """What opens a session of an interpreter. Imports the provider's SDK; raises Refused when it is
    not there.
    """
    if provider not in SESSIONS:
        known = ", ".join(f"`{name}`" for name in sorted(SESSIONS))
        raise Refused(
            f"`{provider}` is no provider that interpreters run on; there is {known}",
            hint="pass provider=... or set FLEETCTL_PROVIDER",
        )
    module, _, function = SESSIONS[provider].partition(":")
    try:
        return cast(OpenSession, getattr(import_module(module), function))
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "fleetctl":
            raise
        raise Refused(
            f"provider `{provider}` needs the package `{error.name}`, which is not installed",
            hint=f"pip install 'fleetctl[{provider}]'",
        ) from error
