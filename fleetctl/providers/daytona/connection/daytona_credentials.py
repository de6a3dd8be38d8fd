"""Finds the key for Daytona and the server that it is sent to, and calls the API with both where
the SDK has no method.

The key is looked for where the SDK looks, in the same order: the environment, then
`.env.local` and `.env` of the working directory, which may name a key and never a server. No
private part of the SDK is used here.
"""

from __future__ import annotations

import asyncio
import os
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote
from weakref import WeakKeyDictionary

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.providers.contract.account import Account
from fleetctl.providers.daytona.connection import sdk
from fleetctl.providers.daytona.connection.daytona_errors import KEY_AFTER_S, KEY_HINT, is_marked

KEY, TOKEN, ORGANIZATION = "DAYTONA_API_KEY", "DAYTONA_JWT_TOKEN", "DAYTONA_ORGANIZATION_ID"
TARGET = "DAYTONA_TARGET"
FILES = (".env.local", ".env")  # the first that has the key

FETCH_S = 30.0
DELETE_S = 30.0
LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class Credentials:
    """A key for Daytona. source: where the key was found, for messages. organization: needed with a
    token; a key names its own.
    """

    url: str
    source: str
    key: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    organization: str = ""
    target: str = ""

    def headers(self) -> dict[str, str]:
        """Returns the headers of a request of our own."""
        made = {"Authorization": f"Bearer {self.key or self.token}"}
        if self.token and not self.key:
            made["X-Daytona-Organization-ID"] = self.organization
        return made


# The credentials of each client of the SDK, which does not expose them.
_of_clients: WeakKeyDictionary[object, Credentials] = WeakKeyDictionary()


def keep_credentials(client: object, known: Credentials) -> None:
    """The SDK's client was made with these."""
    _of_clients[client] = known


def of_client(client: object) -> Credentials:
    return _of_clients[client]


def of_account(account: Account) -> Credentials:
    """Returns the credentials of an account. Raises Unavailable when there is no key: the account
    waits, and no request is wrong.
    """
    server = server_url(account)
    if account.declared:
        try:
            key = account.value("apiKeyEnv")
        except Refused as error:
            raise _key_missing(str(error), error.hint) from error
        target = account.declared.get("target", "")
        return Credentials(
            url=server,
            source=account.where(),
            key=key,
            target=target,
        )
    files = _read_env_files()
    found = {name: _first_value(name, files) for name in (KEY, TOKEN, ORGANIZATION, TARGET)}
    key, source = found[KEY]
    token, token_source = found[TOKEN] if not key else ("", "")
    if not key and not token:
        raise _key_missing(f"{account.label}there is no key for Daytona", account.hint(KEY_HINT))
    return Credentials(
        url=server,
        source=source if key else token_source,
        key=key,
        token=token,
        organization=found[ORGANIZATION][0],
        target=found[TARGET][0],
    )


def server_url(account: Account) -> str:
    """The server to ask: never one that a file of the working directory names."""
    return (
        account.declared.get("apiUrl")
        or os.environ.get("DAYTONA_API_URL")
        or "https://app.daytona.io/api"
    )


def _key_missing(message: str, hint: str) -> Unavailable:
    return Unavailable(
        message,
        reason="KeyMissing",
        retry_after_s=KEY_AFTER_S,
        hint=hint,
        account=True,
    )


def _first_value(name: str, files: Mapping[Path, Mapping[str, str | None]]) -> tuple[str, str]:
    """Returns the value and its source; both empty without a value."""
    if value := os.environ.get(name):
        return value, f"the environment, `{name}`"
    for path, values in files.items():
        if value := values.get(name):
            return value, f"the file `{path}`"
    return "", ""


def _read_env_files() -> dict[Path, Mapping[str, str | None]]:
    from dotenv import dotenv_values

    there = (Path.cwd() / name for name in FILES)
    return {path: dotenv_values(path) for path in there if path.is_file()}


async def build_log(client: sdk.AsyncDaytona, snapshot: str) -> str:
    """Returns the whole log of a snapshot's build: the SDK streams no line of a build that is over
    before it looks. "" where it cannot be had: a build's end never depends on its log.
    """
    import aiohttp

    known = of_client(client)
    place = f"{known.url}/snapshots/{quote(snapshot, safe='')}/build-logs-url"
    try:
        async with (
            asyncio.timeout(FETCH_S),
            aiohttp.ClientSession(trust_env=True, headers=known.headers()) as session,
        ):
            async with session.get(place) as address:
                address.raise_for_status()
                log = str((await address.json())["url"])
            async with session.get(log) as answer:
                answer.raise_for_status()
                return await answer.text(errors="replace")
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError, TypeError):
        return ""


def delete_now(client: sdk.AsyncDaytona, id_or_name: str) -> bool:
    """Deletes a sandbox while this process exits, and checks that it is gone. Blocks. False without
    such a sandbox.

    The SDK looks for proxies in a thread at each request, and no thread can be started any more.
    Raises OSError when it is not gone in time.
    """
    known = of_client(client)
    url = f"{known.url}/sandbox/{quote(id_or_name, safe='')}"
    until_s = time.monotonic() + DELETE_S
    method = "DELETE"
    while time.monotonic() < until_s:
        request = urllib.request.Request(url, method=method, headers=known.headers())  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=DELETE_S) as answer:  # noqa: S310
                answer.read()
            method = "GET"  # accepted; from now on it is only looked at
        except urllib.error.HTTPError as error:
            if error.code == 404 and is_marked(error.read()):
                return method == "GET"
            if error.code not in (404, 409):
                raise
        time.sleep(LOOK_S)
    raise TimeoutError(f"sandbox `{id_or_name}` is still there")
