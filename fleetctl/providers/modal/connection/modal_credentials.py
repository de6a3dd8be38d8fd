"""Finds an account's token, read again for each connection, and makes the client with it. Never
shows a token.

Called by modal_connection.py and modal/modal_check.py.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from fleetctl.common.errors import Refused
from fleetctl.providers.contract.account import Account
from fleetctl.providers.modal.connection.modal_errors import account_trouble

if TYPE_CHECKING:
    import modal

LOG_IN = "modal token new"
KEY_MISSING = "KeyMissing"  # the same reason at every provider
SERVER = "MODAL_SERVER_URL"
# The SDK reads the server's address from the process's environment while it makes a client.
_making: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


def check_file() -> None:
    """Raises Refused for a file of the SDK's that cannot be read: with it the SDK cannot even be
    imported.
    """
    path = _config_path()
    try:
        tomllib.loads(path.read_text())
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise Refused(
            f"Modal's configuration `{path}` cannot be read: {error}", hint=f"fix or remove {path}"
        ) from error


def reread_profile() -> None:
    """Reads the SDK's file again: the user may have logged in since the SDK was imported."""
    from modal import config

    handlers = config.logger.handlers[:]
    level = config.logger.level
    importlib.reload(config)
    config.logger.handlers[:] = handlers  # each load adds one
    config.logger.setLevel(level)


async def client_of(account: Account) -> modal.Client:
    """Returns a client of this account alone. Raises Unavailable where it has no token."""
    import modal
    from modal.config import config

    if account.declared:
        try:
            token_id, secret = _read_token(account)
        except Refused as error:
            raise account_trouble(str(error), KEY_MISSING, hint=error.hint) from error
        async with _set_server(_own_server(account)):
            return await modal.Client.from_credentials.aio(token_id, secret)
    token_id, secret = config["token_id"], config["token_secret"]
    if token_id and secret:
        async with _set_server(""):
            return await modal.Client.from_credentials.aio(token_id, secret)
    if config.get("oauth_refresh_token"):
        async with _set_server(""):
            return await modal.Client.from_env.aio()
    raise account_trouble("there is no token for Modal", KEY_MISSING)


def token_fingerprint(account: Account) -> bytes:
    """Returns a fingerprint of the token that a connection would use now; it only shows whether the
    token changed.
    """
    from modal import config as sdk

    if account.declared:
        try:
            held = list(_read_token(account))
        except Refused:
            held = []
    else:
        names = ("token_id", "token_secret", "oauth_refresh_token")
        held = [str(sdk.config.get(name) or "") for name in names]
    return blake2b("\n".join(held).encode(), digest_size=16).digest()


def server_url(account: Account) -> str:
    """Returns the server that the account's client calls, for messages."""
    from modal import config as sdk

    # Further addresses are for when the first one is unreachable.
    return (_own_server(account) or str(sdk.config["server_url"])).partition(",")[0]


def _own_server(account: Account) -> str:
    """Returns the server that the profile names; "" is Modal's usual server."""
    profile = account.declared.get("profile")
    if profile:
        return _of_profile(profile, "server_url")
    return ""


def _read_token(account: Account) -> tuple[str, str]:
    """Returns the token's id and secret. Raises Refused without the variable or the profile."""
    profile = account.declared.get("profile")
    if profile is None:
        return account.value("tokenIdEnv"), account.value("tokenSecretEnv")
    token_id, secret = _of_profile(profile, "token_id"), _of_profile(profile, "token_secret")
    if not (token_id and secret):
        raise Refused(
            f"provider `{account.name}` takes its token from profile `{profile}`, and"
            f" `{_config_path()}` has none of that name",
            hint=f"modal token new --profile {profile}",
        )
    return token_id, secret


def _of_profile(profile: str, key: str) -> str:
    """Returns a profile's value as in the file, whatever the environment sets for the user's own
    account.
    """
    path = _config_path()
    try:
        value = tomllib.loads(path.read_text()).get(profile)
    except FileNotFoundError:
        return ""
    if isinstance(value, dict):
        return str(value.get(key) or "")
    return ""


def _config_path() -> Path:
    return Path(os.environ.get("MODAL_CONFIG_PATH") or Path.home() / ".modal.toml")


@asynccontextmanager
async def _set_server(address: str) -> AsyncIterator[None]:
    """Sets the server of the client that is made inside; one caller at a time, since the SDK has
    one setting for the whole process. "" leaves the setting, unless another caller has changed it.
    """
    async with _making.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
        if not address:
            yield
            return
        before = os.environ.get(SERVER)
        os.environ[SERVER] = address
        try:
            yield
        finally:
            if before is None:
                del os.environ[SERVER]
            else:
                os.environ[SERVER] = before


def may_be_there(account: Account) -> bool:
    """Returns, without the SDK, whether a call to Modal could succeed."""
    given = os.environ.get("MODAL_TOKEN_ID") and os.environ.get("MODAL_TOKEN_SECRET")
    return bool(account.declared or given or _config_path().exists())


def is_there(account: Account) -> bool:
    """Returns whether there is a token for Modal, found out without the SDK. Raises Refused where
    the account names a source of its token that does not exist.
    """
    if account.declared:
        return all(_read_token(account))
    if os.environ.get("MODAL_TOKEN_ID") and os.environ.get("MODAL_TOKEN_SECRET"):
        return True
    try:
        document = tomllib.loads(_config_path().read_text())
    except FileNotFoundError:
        return False
    names = {"token_id", "token_secret"}
    profiles = [it for it in document.values() if isinstance(it, dict)]
    return any(names <= it.keys() or it.get("oauth_refresh_token") for it in profiles)


def token_location(account: Account) -> str:
    """Returns where the token is; "" without a token."""
    from modal import config as sdk

    if account.declared:
        _read_token(account)
        return account.where()
    if os.environ.get("MODAL_TOKEN_ID") and os.environ.get("MODAL_TOKEN_SECRET"):
        return "the environment"
    if (sdk.config["token_id"] and sdk.config["token_secret"]) or sdk.config.get(
        "oauth_refresh_token"
    ):
        return f"`{sdk.user_config_path}`"
    return ""
