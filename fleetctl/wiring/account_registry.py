"""Opens the store, and builds the parts that each provider's package names, when they are needed; a
stand-in serves for a package that cannot be used.

A sort of provider may have several accounts, each a backend with a client of its own. The stand-in
refuses no work for ever: each call reports the fault and its fix, so that the work waits and goes
on once the package is there.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, cast

from fleetctl.common.clock import Clock
from fleetctl.common.errors import FleetctlError, Refused, Unavailable
from fleetctl.common.finding import Finding, Severity
from fleetctl.common.install import install_hint
from fleetctl.controllers.model import Observation
from fleetctl.providers.contract.account import (
    Account,
    Check,
    CheckResult,
    Lookup,
    account_of,
    built_in,
)
from fleetctl.providers.contract.base import (
    Backend,
    Foreseeing,
    FunctionAsset,
    LogChunk,
    Notify,
    Owned,
    Reachable,
    RunRef,
    RunRequest,
)
from fleetctl.providers.contract.orphans import INTERPRETERS, Orphans
from fleetctl.providers.contract.sandbox_access import EndSession, Entering, OpenSession
from fleetctl.providers.contract.terms import Contract
from fleetctl.providers.contract.volume_files import VolumeFiles
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.builtin import BUILT_IN, SORTS
from fleetctl.stores.base import Store
from fleetctl.wiring.plugins import import_part, plugin_of

if TYPE_CHECKING:
    from fleetctl.providers.remote.runs.run_session import Parts, SessionRuns

log = logging.getLogger("fleetctl.providers")

AGAIN_S = 60.0  # between two starts of a run that waits for its provider's package
# It promises the least: what is not known of the real one is never relied on.
CONTRACT = Contract(
    visibility_bound_s=0.0,
    list_shows_finished=False,
    strong_get=False,
    max_lifetime_s=None,
    billing_quantum_s=0.0,
    calls_per_s=1.0,
    calls_at_once=1,
    call_deadline_s=60.0,
    default_parallelism=1,
    poll_s=60.0,
)


def open_store(home: Path, clock: Clock) -> Store:
    """Becomes the writer of the store below `home`. Raises StoreError when another one is."""
    from fleetctl.stores.sqlite.store import open_store as open_sqlite

    return open_sqlite(home, clock)


class AccountRegistry:
    """The providers of one process: the built-in ones, and one for each further account.

    notify: receives events of runs; None where no run is started. environ: the variables with their
    credentials; the environment of this process, unless another shell is searched too.
    """

    def __init__(
        self,
        home: Path,
        *,
        store_id: str,
        notify: Notify | None = None,
        environ: Lookup = os.environ.get,
    ) -> None:
        self._home = home
        self._store_id = store_id
        self._notify: Notify = notify or (lambda _run: None)
        self._environ = environ
        self._now = {name: built_in(name) for name in BUILT_IN}
        self.backends = {name: self._make_backend(name) for name in BUILT_IN}

    def open(self, name: str, spec: Mapping[str, object]) -> Backend:
        """Returns the backend of a Provider object, whose account is from now on that of the spec.
        Makes no request.
        """
        self._now[name] = account_of(name, spec, self._environ)
        if isinstance(self.backends.get(name), UnusableBackend | None):
            self.backends[name] = self._make_backend(name)
        return self.backends[name]

    def restore(self, name: str) -> None:
        """Restores the defaults of a built-in provider."""
        self._now[name] = built_in(name)

    def orphans(self, name: str) -> Orphans:
        """Returns the orphan sandboxes known to a provider of this process."""
        return orphans_of(self._now[name], self._home)

    async def close(self) -> None:
        for backend in self.backends.values():
            await backend.close()

    def _make_backend(self, name: str) -> Backend:
        sort = self._now[name].sort
        if sort not in SORTS:
            return self._make_outside_backend(name, sort)
        account = {"account": lambda: self._now[name]} if SORTS[sort].accounts else {}
        make = import_part(plugin_of(sort).backend)
        built = make(self._home, store_id=self._store_id, notify=self._notify, **account)
        return cast(Backend, built)

    def _make_outside_backend(self, name: str, sort: str) -> Backend:
        """Returns the backend of another project's package, or a stand-in that reports why it
        cannot be used.
        """
        try:
            make = import_part(plugin_of(sort).backend)
            built = make(
                self._home,
                store_id=self._store_id,
                notify=self._notify,
                account=lambda: self._now[name],
            )
            return cast(Backend, built)
        except Refused as error:
            return UnusableBackend(str(error), error.hint)
        except Exception as error:  # another project's bug stops no other provider
            log.warning("provider not built", extra={"provider": name}, exc_info=True)
            what = f"provider `{name}` cannot be built: {type(error).__name__}: {error}"
            return UnusableBackend(what, f"reinstall the package that provides `{sort}`")


def volume_files(
    account: Account,
    home: Path,
    *,
    store_id: str = "",
) -> VolumeFiles:
    """Returns the files of a provider's volumes. store_id: read from the store below `home` where
    it is not given.
    """
    from fleetctl.stores.read.reader import Reader

    if not store_id:
        with Reader(home) as reader:
            store_id = reader.store_id()
    files = _load_part(account.sort, plugin_of(account.sort).volume_files, "no volumes")
    built = files(home, account, store_id=store_id)
    return cast(VolumeFiles, built)


def orphans_of(account: Account, home: Path) -> Orphans:
    """Returns the orphan sandboxes known to a provider."""
    return cast(Orphans, import_part(plugin_of(account.sort).orphans)(home, account))


def find_entering(account: Account, home: Path) -> Entering:
    """Returns the access to sandboxes of a provider."""
    into = _load_part(account.sort, plugin_of(account.sort).exec, "no sandbox to enter")
    return cast(Entering, into(home, account))


async def check_providers(home: Path, accounts: Sequence[Account]) -> list[CheckResult]:
    """Returns the findings of each provider about this machine and its account; all run at once."""
    asked = (_check_account(home, account) for account in accounts)
    return [finding for findings in await asyncio.gather(*asked) for finding in findings]


async def _check_account(home: Path, account: Account) -> list[CheckResult]:
    if account.sort in SORTS:
        check = cast(Check, import_part(plugin_of(account.sort).check))
        return await check(home, account)
    try:
        check = cast(Check, import_part(plugin_of(account.sort).check))
        return list(await check(home, account))
    except FleetctlError as error:
        return [CheckResult(account.name, "package", False, str(error), error.hint)]
    except Exception as error:  # another project's bug stops no other check
        log.warning("provider not checked", extra={"provider": account.name}, exc_info=True)
        text = f"its check failed: {type(error).__name__}: {error}"
        fix = f"reinstall the package that provides `{account.sort}`"
        return [CheckResult(account.name, "package", False, text, fix)]


def session_opener(provider: str, home: Path) -> OpenSession:
    """Returns the opener of sessions for an interpreter. provider: a name of a built-in provider,
    or of a Provider object below `home` whose sessions are runs. Imports the provider's SDK; raises
    Refused when it is not installed.
    """
    account = declared_account(provider, home)
    plugin = plugin_of(account.sort) if account.sort in SORTS else None
    if plugin is None or not (
        plugin.run_sessions or (plugin.session and account.name == account.sort)
    ):
        known = ", ".join(f"`{name}`" for name in sorted(filter(_has_sessions, BUILT_IN)))
        raise Refused(
            f"`{provider}` is not a provider that interpreters run on; there is {known}",
            hint="pass provider=... or set FLEETCTL_PROVIDER",
        )
    try:
        if not plugin.run_sessions:
            return cast(OpenSession, import_part(plugin.session))
        if plugin.sdk:
            import_module(plugin.sdk)  # what it does at exit has to come after ours
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "fleetctl":
            raise
        raise Refused(
            f"provider `{provider}` needs the package `{error.name}`, which is not installed",
            hint=install_hint(account.sort),
        ) from error
    from fleetctl.providers.remote.runs.run_session import open_session

    return partial(open_session, account=provider, parts=_session_parts(account, home))


def session_ender(provider: str, home: Path) -> EndSession:
    """Returns the function that ends sessions at a provider. Raises ModuleNotFoundError where its
    SDK is not installed any more, or its Provider object is gone.
    """
    account = declared_account(provider, home)
    plugin = plugin_of(account.sort) if account.sort in SORTS else None
    if plugin is not None and plugin.run_sessions:
        from fleetctl.providers.remote.runs.run_session import end_session

        return partial(end_session, account=provider, parts=_session_parts(account, home))
    if plugin is None or not plugin.session_end:
        raise ModuleNotFoundError(name=provider)
    return cast(EndSession, import_part(plugin.session_end))


def declared_account(provider: str, home: Path) -> Account:
    """Returns the account of a Provider object below `home`, or the built-in one of that name. The
    sort of an unknown name is the name.
    """
    from fleetctl.stores.read.reader import Reader

    with Reader(home) as reader:
        for row in reader.resources("Provider", specs=True):
            if row.name == provider:
                return account_of(provider, json.loads(row.spec or "{}"))
    return built_in(provider)


def _has_sessions(sort: str) -> bool:
    plugin = plugin_of(sort)
    return plugin.run_sessions or bool(plugin.session)


def _session_parts(account: Account, home: Path) -> Parts:
    plugin = plugin_of(account.sort)

    def make() -> SessionRuns:
        backend = import_part(plugin.backend)
        built = backend(
            home, store_id=INTERPRETERS, notify=lambda _run: None, account=lambda: account
        )
        return cast("SessionRuns", built)

    return make, lambda: find_entering(account, home)


def _load_part(
    sort: str,
    where: str,
    lacking: str,
) -> Callable[..., object]:
    """Returns an optional part of a provider. Raises Refused where this provider lacks it."""
    if not where:
        raise Refused(f"provider `{sort}` has {lacking}", hint="name another provider")
    return import_part(where)


class UnusableBackend:
    """A backend that refuses every call. what, fix: as in a Finding."""

    contract = CONTRACT

    def __init__(self, what: str, fix: str) -> None:
        self.what = what
        self.fix = fix

    async def start(self, request: RunRequest) -> str:
        raise self._error()

    async def observe(self, runs: Sequence[RunRef]) -> Sequence[Observation]:
        return ()

    async def stop(self, ref: RunRef, *, grace_s: float) -> None:
        raise self._error()

    async def owned(self) -> Sequence[Owned]:
        raise self._error()

    async def logs(
        self,
        ref: RunRef,
        *,
        offset: int = 0,
        follow: bool = False,
    ) -> AsyncIterator[LogChunk]:
        raise self._error()
        yield  # an async generator, as every provider's `logs` is

    async def ensure_volume(self, name: str) -> None:
        raise self._error()

    async def remove_volume(self, name: str) -> None:
        raise self._error()

    async def ensure_function(self, asset: FunctionAsset) -> None:
        raise self._error()

    async def remove_function(self, name: str) -> None:
        raise self._error()

    async def remove_scratch(self, uid: str, *, keep_logs: bool) -> None:
        raise self._error()

    def revision(
        self,
        uid: str,
        template: Template,
        template_hash: str,
    ) -> str:
        return ""

    def usd_per_s(self, template: Template) -> float | None:
        return None

    def lacks(self, template: Template) -> str:
        return ""  # it may be installed: the work waits

    async def foresee(self, template: Template, account: Account) -> AsyncIterator[Finding]:
        yield Finding((), self.what, self.fix, Severity.LATER)

    async def reach(self) -> None:
        raise self._error()

    async def close(self) -> None:
        """Does no work: nothing was opened."""

    def _error(self) -> Unavailable:
        return Unavailable(
            self.what,
            hint=self.fix,
            reason="NoProvider",
            retry_after_s=AGAIN_S,
            account=True,
        )


_: type[Backend] = UnusableBackend
__: type[Foreseeing] = UnusableBackend
___: type[Reachable] = UnusableBackend
