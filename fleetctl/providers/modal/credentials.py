"""Where the SDK has its token from, read anew for each connection. Never tells a token.

Called by client.py and check.py.
"""

from __future__ import annotations

import importlib
import os
import tomllib
from pathlib import Path

from fleetctl.errors import Refused

LOG_IN = "modal token new"


def check_file() -> None:
    """Raises Refused for a file of the SDK's that cannot be read: with it the SDK cannot even be
    imported.
    """
    path = Path(os.environ.get("MODAL_CONFIG_PATH") or Path.home() / ".modal.toml")
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

    handlers = config.logger.handlers[:]
    importlib.reload(config)
    config.logger.handlers[:] = handlers  # each load adds one


def where() -> str:
    """Where the token is; "" when there is none."""
    from modal.config import config, user_config_path

    if os.environ.get("MODAL_TOKEN_ID") and os.environ.get("MODAL_TOKEN_SECRET"):
        return "the environment"
    if (config["token_id"] and config["token_secret"]) or config.get("oauth_refresh_token"):
        return f"`{user_config_path}`"
    return ""
