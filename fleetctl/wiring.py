"""The one file that names concrete stores and providers. Imported by cli; each import happens when
it is needed.

Of each sort of provider there may be several accounts, each a backend with a client of its own.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import cast

from fleetctl.common.clock import Clock
from fleetctl.common.errors import Refused
from fleetctl.providers.account import Account, Lookup, account_of, built_in
from fleetctl.providers.base import Backend, Notify
from fleetctl.providers.diagnostics import Check, Finding
from fleetctl.providers.exec import Entering
from fleetctl.providers.orphans import Strays
from fleetctl.providers.session import OpenSession
from fleetctl.providers.volume_files import VolumeFiles
from fleetctl.stores.base import Store


@dataclass(frozen=True, slots=True)
class Plugin:
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


def open_store(home: Path, clock: Clock) -> Store:
    """Become the writer of the store below `home`. Raises StoreError when another one is."""
    from fleetctl.stores.sqlite.store import open_store as open_sqlite

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
        self._now = {name: built_in(name) for name in PLUGINS}
        self.backends = {name: self._made(name) for name in PLUGINS}

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
        plugin = PLUGINS[self._now[name].sort]
        account = {} if plugin.one_account else {"account": lambda: self._now[name]}
        make = _part(plugin.backend)
        built = make(self._home, store_id=self._store_id, notify=self._notify, **account)
        return cast(Backend, built)


def build_providers(home: Path, *, store_id: str, notify: Notify) -> dict[str, Backend]:
    """Every provider that is built in, by name."""
    return Accounts(home, store_id=store_id, notify=notify).backends


def volume_files(account: Account, home: Path) -> VolumeFiles:
    """The files of a provider's volumes."""
    from fleetctl.stores.read.reader import Reader

    with Reader(home) as reader:
        store_id = reader.store_id()
    built = _part(PLUGINS[account.sort].volume_files)(home, account, store_id=store_id)
    return cast(VolumeFiles, built)


def listed_bytes(sort: str, home: Path, volume: str) -> int | None:
    """What is in a volume, where a list can afford to ask; None elsewhere, and beyond its bounds.

    sort: of its provider; volume: its name there.
    """
    plugin = PLUGINS.get(sort)
    if plugin is None or not plugin.listed_bytes:
        return None
    return cast(int | None, _part(plugin.listed_bytes)(home, volume))


def kept_files(sort: str, home: Path, uid: str, run: str) -> Path | None:
    """Where an ended task began, with the files that it left; None where its disk went with it.

    sort: of its provider, as in an Account.
    """
    plugin = PLUGINS.get(sort)
    if plugin is None or not plugin.kept:
        return None
    return cast(Path | None, _part(plugin.kept)(home, uid, run))


def strays_of(account: Account, home: Path) -> Strays:
    """What a provider knows of sandboxes that nobody may remember."""
    return cast(Strays, _part(PLUGINS[account.sort].orphans)(home, account))


def entering(account: Account, home: Path) -> Entering:
    """The way into sandboxes of a provider."""
    return cast(Entering, _part(PLUGINS[account.sort].exec)(home, account))


async def check_providers(home: Path, accounts: Sequence[Account]) -> list[Finding]:
    """What each provider says of this machine and its account; all are asked at once."""
    checks = [cast(Check, _part(PLUGINS[account.sort].check)) for account in accounts]
    asked = (check(home, account) for check, account in zip(checks, accounts, strict=True))
    return [finding for findings in await asyncio.gather(*asked) for finding in findings]


def session_opener(provider: str) -> OpenSession:
    """What opens a session of an interpreter. Imports the provider's SDK; raises Refused when it is
    not there.
    """
    if provider not in PLUGINS:
        known = ", ".join(f"`{name}`" for name in sorted(PLUGINS))
        raise Refused(
            f"`{provider}` is no provider that interpreters run on; there is {known}",
            hint="pass provider=... or set FLEETCTL_PROVIDER",
        )
    try:
        return cast(OpenSession, _part(PLUGINS[provider].session))
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "fleetctl":
            raise
        raise Refused(
            f"provider `{provider}` needs the package `{error.name}`, which is not installed",
            hint=f"pip install 'fleetctl[{provider}]'",
        ) from error


def _part(where: str) -> Callable[..., object]:
    module, _, name = where.partition(":")
    return cast(Callable[..., object], getattr(import_module(module), name))
