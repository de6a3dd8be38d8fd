"""The provider's one connection to Modal: the SDK, its client, the workspace that it works in, the
app of our store, and the pacing of calls.

The connection is made at the first call that needs it; several callers share one attempt. Each
account has a connection of its own, so that no call uses the token of another account. No token is
ever printed.

The workspace and the environment are remembered on disk, as environments do not see each other's
objects: in another one each sandbox would seem to be gone and its work would begin again, on new
and empty volumes.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.metadata
import importlib.util
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.common.errors import FleetctlError, Refused, Unavailable
from fleetctl.common.install import install_hint
from fleetctl.providers.contract.account import Account, AccountNow, built_in
from fleetctl.providers.modal.connection import modal_credentials
from fleetctl.providers.modal.connection.modal_errors import (
    TOKEN_HINT,
    account_trouble,
    not_found_error,
    retryable_call,
)
from fleetctl.providers.paths import make_private
from fleetctl.providers.remote.sandboxes.sandbox_names import group_name
from fleetctl.providers.remote.service_calls import LastFailure, read_settings

if TYPE_CHECKING:
    import modal


# As the extra `modal` in pyproject.toml has it; a test compares them.
OLDEST = "1.6.4"
NOT_YET = "1.7"
VERSIONS = f">={OLDEST},<{NOT_YET}"
EXTRA = "modal"
_MISSING = "provider `modal` needs the package `modal`, which is not installed"

PREFIX = "FLEETCTL_MODAL_"

FILE = "workspace"


class ModalConnection:
    """The SDK's client and app for one account. memory: of where the store's sandboxes are; None
    for callers that do not need it. account: the account of the token; when its token changes, the
    next caller connects again. connect_s: seconds; None is the time of the settings.
    """

    def __init__(
        self,
        store_id: str,
        *,
        account: AccountNow = lambda: built_in("modal"),
        connect_s: float | None = None,
        memory: WorkspaceMemory | None = None,
    ) -> None:
        self.app_name = group_name(store_id)
        self._account = account
        self._connected_as: Account | None = None
        self._connected_with = b""  # see modal_credentials.token_fingerprint
        self._left: list[modal.Client] = []  # of an account that was changed; some still use them
        self._given_connect_s = connect_s
        self._memory = memory
        self._where = Workspace("", "")
        self._client: modal.Client | None = None
        self._app: modal.App | None = None
        self._lock = asyncio.Lock()
        self._failure = LastFailure()

    async def client(self) -> modal.Client:
        """Returns a client to which Modal has replied. Raises Unavailable without a reply; and, as
        a problem of the account, without the package or a token, or if the workspace changed.
        """
        async with self._lock:
            self._leave_old_account()
            return await self._take_client()

    async def client_to_make(self) -> modal.Client:
        """Returns a client as `client` does, for callers that make an object that is to be found
        again.
        """
        async with self._lock:
            self._leave_old_account()
            client = await self._take_client()
            self._note()
            return client

    async def app(self) -> modal.App:
        """The app that holds every sandbox of our store; made when it is missing."""
        async with self._lock:
            self._leave_old_account()
            if self._app is None:
                self._app = await self._find_app(create=True)
            assert self._app is not None
            return self._app

    async def app_if_any(self) -> modal.App | None:
        """Returns the store's app; None when the store never made an object at Modal."""
        async with self._lock:
            self._leave_old_account()
            if self._app is None:
                self._app = await self._find_app(create=False)
            return self._app

    @property
    def open_client(self) -> modal.Client | None:
        return self._client

    def forget_app(self) -> None:
        """Looks it up again at the next need."""
        self._app = None

    def mark_refused(self, client: modal.Client) -> None:
        """Marks the client's token as refused. Where the account has another token by now, the next
        caller connects with that; present users of this client keep it.
        """
        if client is not self._client:
            return
        modal_credentials.reread_profile()
        if modal_credentials.token_fingerprint(self._account()) != self._connected_with:
            self._leave()

    async def close(self) -> None:
        clients = [*self._left, *([self._client] if self._client else [])]
        self._left = []
        self._client = None
        self._app = None
        for client in clients:
            await client.close.aio()

    def _leave_old_account(self) -> None:
        if self._client is not None and self._account() != self._connected_as:
            self._leave()
            self._failure.forget()

    def _leave(self) -> None:
        if self._client is not None:
            self._left.append(self._client)
            self._client = None
            self._app = None

    async def _take_client(self) -> modal.Client:
        if self._client is None:
            self._failure.raise_again()
            try:
                self._client = await self._connect()
            except FleetctlError as error:
                self._remember(error)
                raise
        return self._client

    async def _connect(self) -> modal.Client:
        account = self._account()
        try:
            await self._load_sdk()
            token = modal_credentials.token_fingerprint(account)
            async with retryable_call(_describe_failure(account), deadline_s=self._connect_s):
                client = await modal_credentials.client_of(account)
                try:
                    # The SDK's client has not called Modal yet: an unreachable server is found out
                    # here.
                    where = await ask_workspace(client)
                    if self._memory is not None:
                        self._memory.check(where)
                except BaseException:
                    await client.close.aio()  # it would go on trying in the background
                    raise
        except Refused as error:
            # A missing package or another workspace is never the fault of a template.
            raise account_trouble(str(error), "AccountNotReady", hint=error.hint) from error
        except Unavailable as error:
            if error.hint == TOKEN_HINT:
                error.hint = account.hint(TOKEN_HINT)
            if error.reason == "Unavailable":
                error.reason = "Unreachable"  # no call was sent yet
            raise
        self._connected_as = account
        self._connected_with = token
        self._where = where
        return client

    async def _load_sdk(self) -> None:
        """Loads the SDK with our settings, in a process of our own; a subclass for another's
        process overrides this.
        """
        modal_credentials.check_file()
        await import_sdk()
        modal_credentials.reread_profile()
        # Throttling must come to us at once: only then can it be reported, and others let through.
        os.environ["MODAL_MAX_THROTTLE_WAIT"] = "0"

    @property
    def _connect_s(self) -> float:
        given_s = self._given_connect_s
        if given_s is None:
            return from_environment().connect_s
        return given_s

    def _note(self) -> None:
        if self._memory is not None:
            self._memory.note(self._where)

    async def _find_app(self, *, create: bool) -> modal.App | None:
        client = await self._take_client()
        self._failure.raise_again()
        import modal

        try:
            async with retryable_call(
                _describe_failure(self._account()), deadline_s=self._connect_s
            ):
                app = await modal.App.lookup.aio(
                    self.app_name, client=client, create_if_missing=create
                )
        except FleetctlError as error:
            self._remember(error)
            if isinstance(error, Unavailable) and error.account:
                self.mark_refused(client)
            raise
        except not_found_error():
            return None
        if create:
            self._note()
        return app

    def _remember(self, error: FleetctlError) -> None:
        # A refused connection is tried again at once: the answer comes quickly, and a user may have
        # fixed its cause.
        if isinstance(error, Unavailable) and not error.account:
            self._failure.remember(error)


def _describe_failure(account: Account) -> str:
    return f"{account.label}cannot use Modal at `{modal_credentials.server_url(account)}`"


async def import_sdk() -> None:
    """Imports the SDK in a thread: it takes most of a second. Raises Refused as `installed` does.

    Its modules import each other in circles, so that two threads that begin at different ones leave
    it broken for the life of the process. A module that imports a part of the SDK asks for the
    package first, which waits for the thread: `from modal import exception`, never `from
    modal.exception import`.
    """
    installed_version()
    try:
        await asyncio.to_thread(importlib.import_module, "modal")
    except ImportError as error:
        raise Refused(_MISSING, hint=install_hint(EXTRA)) from error


def installed_version() -> str:
    """Returns the package's version, without importing it. Raises Refused when it is missing or too
    old.
    """
    if importlib.util.find_spec("modal") is None:
        raise Refused(_MISSING, hint=install_hint(EXTRA))
    version = importlib.metadata.version("modal")
    if is_too_old(version):
        raise Refused(
            f"provider `modal` needs the package `modal` {VERSIONS}, and {version} is installed",
            hint=install_hint(EXTRA),
        )
    return version


def is_too_old(version: str) -> bool:
    """Returns whether the version is below VERSIONS: such a version cannot stop its deployments. A
    newer one than VERSIONS may well work.
    """
    return _version_numbers(version) < _version_numbers(OLDEST)


def is_too_new(version: str) -> bool:
    """Newer than what the tests run with."""
    return _version_numbers(version) >= _version_numbers(NOT_YET)


def _version_numbers(version: str) -> tuple[int, ...]:
    """The first three numbers of a version such as `1.6.4` or `1.7.0.dev3`."""
    found = [int(digits.group()) for digits in re.finditer(r"\d+", version)]
    return tuple([*found, 0, 0, 0][:3])


@dataclass(frozen=True, slots=True)
class ModalSettings:
    """Settings of the provider. Defaults are the limits of Modal's smallest plan, as far as Modal
    documents them.
    """

    creates_per_s: float = 5.0  # sandboxes made; more is answered with RESOURCE_EXHAUSTED
    creates_burst: float = 150.0
    starts_at_once: float = 64.0  # creates under way that wait for no GPU
    queued_max: float = 32.0  # creates at Modal that may wait for a GPU; each polls twice a second
    lifetime_s: float = 86_400.0  # of a sandbox; Modal allows no more than a day
    # Until Modal has answered at all; the SDK would try for a minute. Ten seconds, less the SDK's
    # import and all else that a command does before.
    connect_s: float = 5.0
    call_s: float = 30.0  # our own deadline for a call
    spawns_per_s: float = 100.0  # calls of functions; a guess
    spawns_burst: float = 1000.0
    look_s: float = 10.0  # between two looks of a call whether its run is to end
    keep_s: float = 60.0  # between two commits of a function's volumes while a task runs
    # For a call for which its container may ask Modal again and again, while that is paid for.
    patience_s: float = 60.0
    # A request for a call's end waits this long at Modal; a second one fetches the output
    # meanwhile.
    call_wait_s: float = 20.0


def from_environment(environ: Mapping[str, str] | None = None) -> ModalSettings:
    """Reads the settings from `FLEETCTL_MODAL_*`. Raises Refused for a value that is not a positive
    number.
    """
    return read_settings(ModalSettings, PREFIX, os.environ if environ is None else environ)


@dataclass(frozen=True, slots=True)
class Workspace:
    """A workspace and an environment at Modal. environment: its name, also where the SDK was given
    no name. Each field may be empty: not known.
    """

    workspace: str
    environment: str

    def __str__(self) -> str:
        return f"{self.workspace}/{self.environment}"  # as in the addresses of modal.com


async def ask_workspace(client: modal.Client) -> Workspace:
    """Asks Modal. Raises Refused for an environment that is not there, and what the SDK raises."""
    import modal
    from modal.config import config

    workspace = modal.Workspace.from_context(client=client)
    await workspace.hydrate.aio()
    environment = modal.Environment.from_context(client=client)
    try:
        await environment.hydrate.aio()
    except modal.exception.NotFoundError as error:
        raise Refused(
            f"Modal's workspace `{workspace.name}` has no environment `{config['environment']}`",
            hint=f"modal environment create {config['environment']}, or unset MODAL_ENVIRONMENT",
        ) from error
    return Workspace(workspace.name or "", environment.name or "")


class WorkspaceMemory:
    """The file `workspace` in a provider's directory."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE

    def check(self, now: Workspace) -> None:
        """Raises Refused where the store's objects are in another workspace or environment."""
        before = self._read()
        rest = f"another FLEETCTL_HOME; with nothing left there: rm {self._path}"
        if before.workspace and now.workspace and before.workspace != now.workspace:
            raise Refused(
                f"this token is of Modal's workspace `{now.workspace}`, and what this store runs"
                f" is in `{before.workspace}`",
                hint=f"use a token of `{before.workspace}`, or {rest}",
            )
        if before.environment and now.environment and before.environment != now.environment:
            raise Refused(
                f"this is the environment `{now.environment}` of Modal's workspace"
                f" `{now.workspace}`, and what this store runs is in `{before.environment}`",
                hint=f"export MODAL_ENVIRONMENT={before.environment}, run `fleetctl down` and apply"
                f" again; or {rest}",
            )

    def note(self, now: Workspace) -> None:
        """Notes that objects of the store may be there from now on. The first note stays."""
        if not self._read().environment:
            make_private(self._path.parent)
            self._path.write_text(str(now))

    def _read(self) -> Workspace:
        try:
            text = self._path.read_text().strip()
        except FileNotFoundError:
            return Workspace("", "")
        workspace, _, environment = text.partition("/")  # the first versions noted no environment
        return Workspace(workspace, environment)
