"""Where an account's token is, read anew for each connection, and the client made with it. Never
tells a token.

Called by client.py and modal/check.py.
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
from fleetctl.providers.modal.connection.errors import account_trouble

if TYPE_CHECKING:
    import modal

LOG_IN = "modal token new"
KEY_MISSING = "KeyMissing"  # as of every provider that needs one
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
            f"Modal's configuration `{path}` cannot be read: {error}", hint=f"mend or remove {path}"
        ) from error


def reread() -> None:
    """The SDK reads its file when it is imported; somebody may have logged in since."""
    from modal import config

    handlers, level = config.logger.handlers[:], config.logger.level
    importlib.reload(config)
    config.logger.handlers[:] = handlers  # each load adds one
    config.logger.setLevel(level)


async def client_of(account: Account) -> modal.Client:
    """A client of this account and no other. Raises Unavailable where it has no token."""
    import modal
    from modal.config import config

    if account.declared:
        try:
            token_id, secret = _token(account)
        except Refused as error:
            raise account_trouble(str(error), KEY_MISSING, hint=error.hint) from error
        async with _speaking_to(_own_server(account)):
            return await modal.Client.from_credentials.aio(token_id, secret)
    token_id, secret = config["token_id"], config["token_secret"]
    if token_id and secret:
        async with _speaking_to(""):
            return await modal.Client.from_credentials.aio(token_id, secret)
    if config.get("oauth_refresh_token"):
        async with _speaking_to(""):
            return await modal.Client.from_env.aio()
    raise account_trouble("there is no token for Modal", KEY_MISSING)


def fingerprint(account: Account) -> bytes:
    """A fingerprint of the token that a connection would use now; it tells only whether it is
    another one.
    """
    from modal import config as sdk

    if account.declared:
        try:
            held = list(_token(account))
        except Refused:
            held = []
    else:
        names = ("token_id", "token_secret", "oauth_refresh_token")
        held = [str(sdk.config.get(name) or "") for name in names]
    return blake2b("\n".join(held).encode(), digest_size=16).digest()


def server(account: Account) -> str:
    """Where its client asks, for people."""
    from modal import config as sdk

    # The others are for when it is away.
    return (_own_server(account) or str(sdk.config["server_url"])).partition(",")[0]


def _own_server(account: Account) -> str:
    """A profile may name one; "" is the server of everybody."""
    profile = account.declared.get("profile")
    return _of_profile(profile, "server_url") if profile else ""


def _token(account: Account) -> tuple[str, str]:
    """Raises Refused for a variable that is not set and a profile that is not there."""
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
    """What the file says, whatever the environment says of the account that people use."""
    path = _config_path()
    try:
        value = tomllib.loads(path.read_text()).get(profile)
    except FileNotFoundError:
        return ""
    return str(value.get(key) or "") if isinstance(value, dict) else ""


def _config_path() -> Path:
    return Path(os.environ.get("MODAL_CONFIG_PATH") or Path.home() / ".modal.toml")


@asynccontextmanager
async def _speaking_to(address: str) -> AsyncIterator[None]:
    """The server of the client that is made meanwhile; one at a time, since the SDK has one
    setting for the whole process. "" leaves it as it is, when nobody has changed it.
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
    """Found out without the SDK: whether asking Modal could lead anywhere."""
    given = os.environ.get("MODAL_TOKEN_ID") and os.environ.get("MODAL_TOKEN_SECRET")
    return bool(account.declared or given or _config_path().exists())


def is_there(account: Account) -> bool:
    """Whether there is a token to ask Modal with, found out without the SDK. Raises Refused where
    the account says where it is, and there is none.
    """
    if account.declared:
        return all(_token(account))
    if os.environ.get("MODAL_TOKEN_ID") and os.environ.get("MODAL_TOKEN_SECRET"):
        return True
    try:
        document = tomllib.loads(_config_path().read_text())
    except FileNotFoundError:
        return False
    names = {"token_id", "token_secret"}
    profiles = [it for it in document.values() if isinstance(it, dict)]
    return any(names <= it.keys() or it.get("oauth_refresh_token") for it in profiles)


def where(account: Account) -> str:
    """Where the token is; "" when there is none."""
    from modal import config as sdk

    if account.declared:
        _token(account)
        return account.where()
    if os.environ.get("MODAL_TOKEN_ID") and os.environ.get("MODAL_TOKEN_SECRET"):
        return "the environment"
    if (sdk.config["token_id"] and sdk.config["token_secret"]) or sdk.config.get(
        "oauth_refresh_token"
    ):
        return f"`{sdk.user_config_path}`"
    return ""
