"""The provider's one connection to Daytona: the SDK and its client, shared by all calls, and the
pacing of these.

Made at the first call that needs it; several callers share one attempt. Never prints a key.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass

from fleetctl.common.errors import FleetctlError, Refused, Unavailable
from fleetctl.common.install import install_hint
from fleetctl.providers.contract.account import Account, AccountNow, built_in
from fleetctl.providers.daytona.connection import daytona_credentials, sdk
from fleetctl.providers.daytona.connection.daytona_errors import KEY_HINT, retryable_call
from fleetctl.providers.remote.service_calls import LastFailure, read_settings

CONNECTIONS_MAX = 2000  # a stream for each run, and calls beside them

PREFIX = "FLEETCTL_DAYTONA_"


class DaytonaConnection:
    """The SDK's client for one account. account: the account of the key; when its key changes, the
    next caller connects again.
    connect_s: seconds; None is the time of the settings.
    """

    def __init__(
        self,
        *,
        account: AccountNow = lambda: built_in("daytona"),
        connect_s: float | None = None,
    ) -> None:
        self._account = account
        self._connected_as: Account | None = None
        self._left: list[sdk.AsyncDaytona] = []  # of an account that was changed
        self._given_connect_s = connect_s
        self._client: sdk.AsyncDaytona | None = None
        self._lock = asyncio.Lock()
        self._failure = LastFailure()

    @property
    def is_open(self) -> bool:
        return self._client is not None

    async def client(self) -> sdk.AsyncDaytona:
        """Returns the client of the account, which is connected again when the account changes.
        Raises Refused without the package or a key, Unavailable when Daytona does not answer.
        """
        if self._client is not None and self._account() == self._connected_as:
            return self._client
        async with self._lock:
            if self._client is not None and self._account() != self._connected_as:
                self._left.append(self._client)  # calls that are under way still use it
                self._client = None
                self._failure.forget()
            if self._client is None:
                self._failure.raise_again()
                try:
                    self._client = await self._connect()
                except FleetctlError as error:
                    self._failure.remember(error)
                    raise
            return self._client

    async def close(self) -> None:
        clients = [*self._left, *([self._client] if self._client else [])]
        self._left = []
        self._client = None
        for client in clients:
            await client.close()

    async def _connect(self) -> sdk.AsyncDaytona:
        account = self._account()
        connect_s = self._given_connect_s
        if connect_s is None:
            connect_s = from_environment().connect_s
        await import_sdk()
        known = daytona_credentials.of_account(account)
        server = known.url
        about = sdk.DaytonaConfig(api_url=server, connection_pool_maxsize=CONNECTIONS_MAX)
        about.api_key = known.key or None
        about.target = known.target or None
        about.jwt_token, about.organization_id = known.token or None, known.organization or None
        try:
            client = sdk.AsyncDaytona(about)
        except sdk.DaytonaError as error:
            raise Refused(f"{account.label}{error}", hint=account.hint(KEY_HINT)) from error
        daytona_credentials.keep_credentials(client, known)
        what = f"{account.label}cannot reach Daytona at `{server}`"
        try:
            async with retryable_call(what, deadline_s=connect_s):
                await client.snapshot.list(limit=1)  # cheap, and only a working key may
        except BaseException as error:
            await client.close()
            if isinstance(error, FleetctlError):
                raise _translate_first_error(error, account, server, what) from error
            raise
        self._connected_as = account
        return client


def _translate_first_error(
    error: FleetctlError,
    account: Account,
    server: str,
    what: str,
) -> FleetctlError:
    """Returns the error of the first call: of an account that was reached, or of a server that was
    not.
    """
    if not isinstance(error, Unavailable):
        return error
    if not error.account:
        silent = error.reason == "Unavailable"
        error.reason = "Unreachable" if silent else error.reason
        return error
    message = str(error).removeprefix(f"{what}: ")
    hint = account.hint(KEY_HINT) if error.hint == KEY_HINT else error.hint
    return Unavailable(
        f"{account.label}{message} (at `{server}`)",
        reason=error.reason,
        retry_after_s=error.retry_after_s,
        hint=hint,
        account=True,
    )


async def import_sdk() -> None:
    """Imports the SDK in a thread: it takes more than a second. Raises Refused when it is not
    there, or is one that lacks what we need.
    """
    problem = await asyncio.to_thread(sdk.find_problem)
    if problem:
        raise Refused(
            f"provider `daytona` needs the package `daytona`: it {problem}",
            hint=install_hint("daytona"),
        )


@dataclass(frozen=True, slots=True)
class DaytonaSettings:
    """Settings of the provider. Defaults are the limits of Daytona's smallest tier, where it
    documents them.
    """

    creates_per_s: float = 5.0  # 300 a minute; more is answered with 429
    creates_burst: float = 60.0
    making_max: float = 500.0  # sandboxes under way at once; each is looked at now and then
    # TTL of a sandbox whose task names no timeoutSeconds: our dead-man's switch. It cuts no task
    # that names one.
    lifetime_s: float = 86_400.0
    queue_s: float = 3600.0  # a sandbox with a GPU waits this long for a machine, then asks again
    # Until Daytona has answered at all. Ten seconds, less the SDK's import and all else that a
    # command does before.
    connect_s: float = 5.0
    call_s: float = 30.0  # our own deadline for a call
    quick_s: float = 2.0  # a task that ends sooner is begun, followed and ended in one call


def from_environment(environ: Mapping[str, str] | None = None) -> DaytonaSettings:
    """Reads the settings from `FLEETCTL_DAYTONA_*`. Raises Refused for a value that is not a
    positive number.
    """
    return read_settings(DaytonaSettings, PREFIX, os.environ if environ is None else environ)
