"""Whose key is used at Daytona, and where it is sent. Made by client.py; read by what asks Daytona
something that the SDK has no call for, and by `fleetctl doctor`.

The same places in the same order as the SDK's own: the environment, then `.env.local` and `.env` of
the working directory, which may name a key and never a server.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from weakref import WeakKeyDictionary

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.providers.contract.account import Account
from fleetctl.providers.daytona.connection.errors import KEY_AFTER_S, KEY_HINT

KEY, TOKEN, ORGANIZATION = "DAYTONA_API_KEY", "DAYTONA_JWT_TOKEN", "DAYTONA_ORGANIZATION_ID"
TARGET = "DAYTONA_TARGET"
FILES = (".env.local", ".env")  # the first that says it


@dataclass(frozen=True, slots=True)
class Credentials:
    """source: where the key was found, for people. organization: what a token needs, and a key
    names itself.
    """

    url: str
    source: str
    key: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    organization: str = ""
    target: str = ""

    def headers(self) -> dict[str, str]:
        """What a request of our own carries."""
        made = {"Authorization": f"Bearer {self.key or self.token}"}
        if self.token and not self.key:
            made["X-Daytona-Organization-ID"] = self.organization
        return made


# Whose each client of the SDK is, which does not tell.
_of_clients: WeakKeyDictionary[object, Credentials] = WeakKeyDictionary()


def keep(client: object, known: Credentials) -> None:
    """The SDK's client was made with these."""
    _of_clients[client] = known


def of_client(client: object) -> Credentials:
    return _of_clients[client]


def of_account(account: Account) -> Credentials:
    """Raises Unavailable when there is no key: the account waits, and no order is wrong."""
    server = url(account)
    if account.declared:
        try:
            key = account.value("apiKeyEnv")
        except Refused as error:
            raise _missing(str(error), error.hint) from error
        target = account.declared.get("target", "")
        return Credentials(url=server, source=account.where(), key=key, target=target)
    files = _files()
    found = {name: _first(name, files) for name in (KEY, TOKEN, ORGANIZATION, TARGET)}
    key, source = found[KEY]
    token, token_source = found[TOKEN] if not key else ("", "")
    if not key and not token:
        raise _missing(f"{account.label}there is no key for Daytona", account.hint(KEY_HINT))
    return Credentials(
        url=server,
        source=source if key else token_source,
        key=key,
        token=token,
        organization=found[ORGANIZATION][0],
        target=found[TARGET][0],
    )


def url(account: Account) -> str:
    """The server to ask: never one that a file of the working directory names."""
    return (
        account.declared.get("apiUrl")
        or os.environ.get("DAYTONA_API_URL")
        or "https://app.daytona.io/api"
    )


def _missing(message: str, hint: str) -> Unavailable:
    return Unavailable(
        message, reason="KeyMissing", retry_after_s=KEY_AFTER_S, hint=hint, account=True
    )


def _first(name: str, files: Mapping[Path, Mapping[str, str | None]]) -> tuple[str, str]:
    """The value, and where it stands; both empty when nobody says it."""
    if value := os.environ.get(name):
        return value, f"the environment, `{name}`"
    for path, values in files.items():
        if value := values.get(name):
            return value, f"the file `{path}`"
    return "", ""


def _files() -> dict[Path, Mapping[str, str | None]]:
    from dotenv import dotenv_values

    there = (Path.cwd() / name for name in FILES)
    return {path: dotenv_values(path) for path in there if path.is_file()}
