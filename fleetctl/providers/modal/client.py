"""The provider's one connection to Modal: the SDK, its client, and the app of our store.

Made at the first call that needs it; several callers share one attempt. One for each account, so
that nothing of one ever asks with the token of another. Never prints a token.
"""

from __future__ import annotations

import asyncio
import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.errors import FleetctlError, Refused, Unavailable
from fleetctl.providers.account import Account, AccountNow, built_in
from fleetctl.providers.modal import credentials
from fleetctl.providers.modal.errors import TOKEN_HINT, asking, is_not_found
from fleetctl.providers.remote.names import group_name
from fleetctl.providers.rundir.places import make_private

if TYPE_CHECKING:
    import modal

CONNECT_S = 8.0  # an answer within 10 s, with all that is before it; the SDK tries for a minute
FAILED_FOR_S = 5.0  # so long everybody who asks hears that Modal does not answer


class Connection:
    """memory: the file that remembers the workspace that our sandboxes are in; None for who makes
    none. account: whose token it is; with another answer, the next caller connects anew.
    """

    def __init__(
        self,
        store_id: str,
        *,
        account: AccountNow = lambda: built_in("modal"),
        connect_s: float | None = None,
        memory: Path | None = None,
    ) -> None:
        self.app_name = group_name(store_id)
        self._account = account
        self._connected_as: Account | None = None
        self._left: list[modal.Client] = []  # of an account that was changed; some still use them
        self._connect_s = CONNECT_S if connect_s is None else connect_s
        self._memory = memory
        self._workspace = ""
        self._client: modal.Client | None = None
        self._app: modal.App | None = None
        self._lock = asyncio.Lock()
        self._failure: tuple[float, Unavailable] | None = None

    async def client(self) -> modal.Client:
        """Raises Refused without the package or a token, Unavailable when nobody answers."""
        async with self._lock:
            self._leave_old_account()
            return await self._connected()

    async def app(self) -> modal.App:
        """The app that holds every sandbox of our store; made when it is missing."""
        async with self._lock:
            self._leave_old_account()
            if self._app is None:
                self._app = await self._found_app(create=True)
            assert self._app is not None
            return self._app

    async def app_if_any(self) -> modal.App | None:
        """None when our store never made anything at Modal."""
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

    async def close(self) -> None:
        clients, self._left = [*self._left, *([self._client] if self._client else [])], []
        self._client, self._app = None, None
        for client in clients:
            await client.close.aio()

    def _leave_old_account(self) -> None:
        account = self._account()
        if self._client is not None and account != self._connected_as:
            self._left.append(self._client)
            self._client, self._app, self._failure = None, None, None

    async def _connected(self) -> modal.Client:
        if self._client is None:
            self._fail_again()
            try:
                self._client = await self._connect()
            except FleetctlError as error:
                self._remember(error)
                raise
        return self._client

    async def _connect(self) -> modal.Client:
        account = self._account()
        credentials.check_file()
        await import_sdk()
        credentials.reread()
        # Throttling must come to us at once: only then can it be told, and others let through.
        os.environ["MODAL_MAX_THROTTLE_WAIT"] = "0"
        try:
            async with asking(_what(account), deadline_s=self._connect_s):
                client = await credentials.client_of(account)
                try:
                    if self._memory is not None:
                        await self._recognise(client, self._memory)
                except BaseException:
                    await client.close.aio()  # it would go on trying in the background
                    raise
        except Refused as error:
            if error.hint == TOKEN_HINT:
                raise Refused(str(error), hint=account.hint(TOKEN_HINT)) from error
            raise
        self._connected_as = account
        return client

    async def _recognise(self, client: modal.Client, memory: Path) -> None:
        """Raises Refused in another workspace than our sandboxes are in: there each would seem to
        be gone, and its work would begin again.
        """
        import modal

        workspace = modal.Workspace.from_context(client=client)
        await workspace.hydrate.aio()
        self._workspace = workspace.name or ""
        before = memory.read_text().strip() if memory.exists() else ""
        if before and self._workspace and before != self._workspace:
            raise Refused(
                f"this token is of Modal's workspace `{self._workspace}`, and what this store runs"
                f" is in `{before}`",
                hint=f"use a token of `{before}`, or another FLEETCTL_HOME;"
                f" with nothing left there: rm {memory}",
            )

    async def _found_app(self, *, create: bool) -> modal.App | None:
        client = await self._connected()
        self._fail_again()
        import modal

        try:
            async with asking(_what(self._account()), deadline_s=self._connect_s):
                app = await modal.App.lookup.aio(
                    self.app_name, client=client, create_if_missing=create
                )
        except FleetctlError as error:
            self._remember(error)
            if isinstance(error, Refused):
                await self.close()  # the next try reads the token anew
            raise
        except Exception as error:
            if is_not_found(error):
                return None
            raise
        if create and self._memory is not None and not self._memory.exists():
            make_private(self._memory.parent)
            self._memory.write_text(self._workspace)
        return app

    def _remember(self, error: FleetctlError) -> None:
        # A refusal is asked for anew: it comes quickly, and a person may have mended its cause.
        if isinstance(error, Unavailable):
            self._failure = (asyncio.get_running_loop().time() + FAILED_FOR_S, error)

    def _fail_again(self) -> None:
        """A hundred starts that wait in turn must not wait for a hundred deadlines."""
        if self._failure is None:
            return
        until_s, error = self._failure
        if asyncio.get_running_loop().time() >= until_s:
            self._failure = None
            return
        after_s, reason = error.retry_after_s, error.reason
        raise Unavailable(str(error), retry_after_s=after_s, reason=reason, hint=error.hint)


def _what(account: Account) -> str:
    return f"{account.label}cannot use Modal at `{credentials.server(account)}`"


async def import_sdk() -> None:
    """In a thread: it takes most of a second. Raises Refused when it is not there.

    Its modules import each other in circles, so that two threads that begin at different ones leave
    it broken for the life of the process. Whoever imports a part of it asks for the package first,
    which waits for the thread: `from modal import exception`, never `from modal.exception import`.
    """
    try:
        await asyncio.to_thread(importlib.import_module, "modal")
    except ImportError as error:
        raise Refused(
            "provider `modal` needs the package `modal`, which is not installed",
            hint="pip install 'fleetctl[modal]'",
        ) from error
