"""The servers that this user has logged in to, and the one in use: a file of the user's own.
Called by the entry point, `login` and `config`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NamedTuple

from fleetctl.common.errors import UsageError
from fleetctl.common.state_paths import open_private

SERVER_VARIABLE = "FLEETCTL_SERVER"
TOKEN_VARIABLE = "FLEETCTL_TOKEN"  # noqa: S105 - its name, no token
HERE = "local"  # the context without a server


class ServerContext(NamedTuple):
    """A server under a name of the user's."""

    name: str
    server: str
    token: str


class ContextFile:
    """The file. A missing one has no context; an unreadable one is an error."""

    def __init__(self) -> None:
        base = os.environ.get("XDG_CONFIG_HOME", "")
        root = Path(base) if Path(base).is_absolute() else Path("~/.config").expanduser()
        self.path = root / "fleetctl" / "contexts.json"
        self.current = HERE
        self.contexts: dict[str, ServerContext] = {}
        self._read()

    def _read(self) -> None:
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
            self.current = str(found["current"])
            for name, it in found["contexts"].items():
                self.contexts[name] = ServerContext(name, str(it["server"]), str(it["token"]))
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(
                f"`{self.path}` cannot be read: {type(error).__name__}",
                hint="remove it, and `fleetctl login URL` again",
            ) from None

    def write(self) -> None:
        """Writes the file, which its user alone may read."""
        contexts = {it.name: {"server": it.server, "token": it.token} for it in self._sorted()}
        text = json.dumps({"current": self.current, "contexts": contexts}, indent=2)
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = self.path.with_suffix(".new")
        fresh.unlink(missing_ok=True)
        with open(fresh, "w", encoding="utf-8", opener=open_private) as file:
            file.write(text + "\n")
        fresh.replace(self.path)

    def _sorted(self) -> list[ServerContext]:
        return sorted(self.contexts.values())

    def in_use(self) -> ServerContext | None:
        return self.contexts.get(self.current)


def chosen_server(flag: str) -> ServerContext | None:
    """Returns the server of `--server`, of FLEETCTL_SERVER, or of the context in use; None for this
    machine. The token of a variable goes before that of a login."""
    named = flag or os.environ.get(SERVER_VARIABLE, "")
    known = ContextFile()
    if named == HERE:
        return None
    found = known.contexts.get(named) if named else known.in_use()
    if found is None and named:
        same = (it for it in known.contexts.values() if it.server == named.rstrip("/"))
        found = next(same, ServerContext("", named, ""))
    if found is None:
        return None
    return found._replace(token=os.environ.get(TOKEN_VARIABLE) or found.token)
