"""The provider's one connection to Modal: the SDK, its client, and the app of our store.

Made at the first call that needs it; several callers share one attempt. One for each account, so
that nothing of one ever asks with the token of another. Never prints a token.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.metadata
import importlib.util
import os
import re
from typing import TYPE_CHECKING

from fleetctl.common.errors import FleetctlError, Refused, Unavailable
from fleetctl.common.install import install_hint
from fleetctl.providers.contract.account import Account, AccountNow, built_in
from fleetctl.providers.modal.connection import credentials, settings, whereabouts
from fleetctl.providers.modal.connection.errors import (
    TOKEN_HINT,
    account_trouble,
    asking,
    is_not_found,
)
from fleetctl.providers.modal.connection.whereabouts import Memory, Where
from fleetctl.providers.remote.connection.failures import LastFailure
from fleetctl.providers.remote.sandboxes.names import group_name

if TYPE_CHECKING:
    import modal

# As the extra `modal` in pyproject.toml has it; a test compares them.
OLDEST, NOT_YET = "1.6.4", "1.7"
VERSIONS = f">={OLDEST},<{NOT_YET}"
EXTRA = "modal"
_MISSING = "provider `modal` needs the package `modal`, which is not installed"


class Connection:
    """memory: of where our sandboxes are; None for who does not care. account: whose token it is;
    with another answer, the next caller connects anew. connect_s: None is that of the settings.
    """

    def __init__(
        self,
        store_id: str,
        *,
        account: AccountNow = lambda: built_in("modal"),
        connect_s: float | None = None,
        memory: Memory | None = None,
    ) -> None:
        self.app_name = group_name(store_id)
        self._account = account
        self._connected_as: Account | None = None
        self._connected_with = b""  # see credentials.fingerprint
        self._left: list[modal.Client] = []  # of an account that was changed; some still use them
        self._given_connect_s = connect_s
        self._memory = memory
        self._where = Where("", "")
        self._client: modal.Client | None = None
        self._app: modal.App | None = None
        self._lock = asyncio.Lock()
        self._failure = LastFailure()

    async def client(self) -> modal.Client:
        """A client that Modal has answered. Raises Unavailable when nobody answers; and, as trouble
        of the account, without the package or a token, or in another workspace than before.
        """
        async with self._lock:
            self._leave_old_account()
            return await self._connected()

    async def client_to_make(self) -> modal.Client:
        """As `client`, for who makes something that is to be found again."""
        async with self._lock:
            self._leave_old_account()
            client = await self._connected()
            self._note()
            return client

    async def app(self) -> modal.App:
        """The app that holds every sandbox of our store; made when it is missing."""
        async with self._lock:
            self._leave_old_account()
            if self._app is None:
                self._app = await self._found_app(create=True)
            assert self._app is not None
            return self._app

    async def app_if_any(self) -> modal.App | None:
        """The store's app; None when the store never made anything at Modal."""
        async with self._lock:
            self._leave_old_account()
            if self._app is None:
                self._app = await self._found_app(create=False)
            return self._app

    @property
    def open_client(self) -> modal.Client | None:
        return self._client

    def forget_app(self) -> None:
        """Look it up again at the next need."""
        self._app = None

    def doubt(self, client: modal.Client) -> None:
        """Its token was refused. Where another one is told by now, the next caller connects with
        that; who uses this client goes on.
        """
        if client is not self._client:
            return
        credentials.reread()
        if credentials.fingerprint(self._account()) != self._connected_with:
            self._leave()

    async def close(self) -> None:
        clients, self._left = [*self._left, *([self._client] if self._client else [])], []
        self._client, self._app = None, None
        for client in clients:
            await client.close.aio()

    def _leave_old_account(self) -> None:
        if self._client is not None and self._account() != self._connected_as:
            self._leave()
            self._failure.forget()

    def _leave(self) -> None:
        if self._client is not None:
            self._left.append(self._client)
            self._client, self._app = None, None

    async def _connected(self) -> modal.Client:
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
            token = credentials.fingerprint(account)
            async with asking(_what(account), deadline_s=self._connect_s):
                client = await credentials.client_of(account)
                try:
                    # The SDK's client asks nobody anything yet: who is silent is found out here.
                    where = await whereabouts.asked(client)
                    if self._memory is not None:
                        self._memory.check(where)
                except BaseException:
                    await client.close.aio()  # it would go on trying in the background
                    raise
        except Refused as error:
            # No package, another workspace: never the fault of one template.
            raise account_trouble(str(error), "AccountNotReady", hint=error.hint) from error
        except Unavailable as error:
            if error.hint == TOKEN_HINT:
                error.hint = account.hint(TOKEN_HINT)
            if error.reason == "Unavailable":
                error.reason = "Unreachable"  # nobody was asked for anything yet
            raise
        self._connected_as, self._connected_with, self._where = account, token, where
        return client

    async def _load_sdk(self) -> None:
        """For a process of our own, where the SDK's settings are ours to make; another's overrides
        this.
        """
        credentials.check_file()
        await import_sdk()
        credentials.reread()
        # Throttling must come to us at once: only then can it be told, and others let through.
        os.environ["MODAL_MAX_THROTTLE_WAIT"] = "0"

    @property
    def _connect_s(self) -> float:
        given_s = self._given_connect_s
        return settings.from_environment().connect_s if given_s is None else given_s

    def _note(self) -> None:
        if self._memory is not None:
            self._memory.note(self._where)

    async def _found_app(self, *, create: bool) -> modal.App | None:
        client = await self._connected()
        self._failure.raise_again()
        import modal

        try:
            async with asking(_what(self._account()), deadline_s=self._connect_s):
                app = await modal.App.lookup.aio(
                    self.app_name, client=client, create_if_missing=create
                )
        except FleetctlError as error:
            self._remember(error)
            if isinstance(error, Unavailable) and error.account:
                self.doubt(client)
            raise
        except Exception as error:
            if is_not_found(error):
                return None
            raise
        if create:
            self._note()
        return app

    def _remember(self, error: FleetctlError) -> None:
        # A refusal is asked for anew: it comes quickly, and a person may have mended its cause.
        if isinstance(error, Unavailable) and not error.account:
            self._failure.remember(error)


def _what(account: Account) -> str:
    return f"{account.label}cannot use Modal at `{credentials.server(account)}`"


async def import_sdk() -> None:
    """Import the SDK in a thread: it takes most of a second. Raises Refused as `installed` does.

    Its modules import each other in circles, so that two threads that begin at different ones leave
    it broken for the life of the process. Whoever imports a part of it asks for the package first,
    which waits for the thread: `from modal import exception`, never `from modal.exception import`.
    """
    installed()
    try:
        await asyncio.to_thread(importlib.import_module, "modal")
    except ImportError as error:
        raise Refused(_MISSING, hint=install_hint(EXTRA)) from error


def installed() -> str:
    """The package's version, without importing it. Raises Refused when there is none, or one that
    is too old.
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
    """Older ones cannot stop what they deployed. What is newer than VERSIONS may well work."""
    return _numbers(version) < _numbers(OLDEST)


def is_too_new(version: str) -> bool:
    """Newer than what the tests run with."""
    return _numbers(version) >= _numbers(NOT_YET)


def _numbers(version: str) -> tuple[int, ...]:
    """The first three numbers of a version such as `1.6.4` or `1.7.0.dev3`."""
    found = [int(digits.group()) for digits in re.finditer(r"\d+", version)]
    return tuple([*found, 0, 0, 0][:3])
