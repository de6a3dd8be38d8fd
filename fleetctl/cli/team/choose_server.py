"""Decides, before a verb runs, whether it works with a server: by `--server`, FLEETCTL_SERVER
or the context in use. Called by the entry point for every command, so it imports little.
"""

from __future__ import annotations

import os
from contextvars import Token
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.common.errors import UsageError
from fleetctl.common.remote import REMOTE

if TYPE_CHECKING:
    from fleetctl.common.remote import RemoteFleet

FLAG = "--server"
# With a server these work as without one.
OVER_SERVER = frozenset((
    "get", "describe", "logs", "events", "results", "wait", "graph",
    "apply", "plan", "delete", "suspend", "resume", "retry", "rerun", "set", "scale", "label",
    "annotate", "reconcile", "run", "create", "edit", "diff", "validate", "cost", "top", "plot",
    "query", "report", "exec", "port-forward", "cp", "ls", "rm",
))  # fmt: skip
# These concern this machine, or no store at all.
OF_THIS_MACHINE = frozenset((
    "init", "explain", "schema", "convert", "render", "api-resources", "completion", "version",
    "serve", "token", "audit", "login", "config", "skills", "up", "down", "operator",
))  # fmt: skip


def take_flag(words: list[str]) -> tuple[list[str], str]:
    """Returns the words without `--server URL`, and the URL; both may stand anywhere before
    `--`."""
    end = words.index("--") if "--" in words else len(words)
    for at, word in enumerate(words[:end]):
        if word == FLAG:
            if at + 1 >= end:
                raise UsageError(f"`{FLAG}` takes a value, and none is there", hint=f"{FLAG} URL")
            return [*words[:at], *words[at + 2 :]], words[at + 1]
        if word.startswith(f"{FLAG}="):
            return [*words[:at], *words[at + 1 :]], word.partition("=")[2]
    return words, ""


def use_server(words: list[str], flag: str) -> Token[RemoteFleet | None] | None:
    """Makes the process work with the chosen server; None where there is none. Raises
    UsageError for a verb that needs the machine of the controller."""
    verb = words[0] if words else ""
    if verb in OF_THIS_MACHINE or verb.startswith("-") or not verb or "--help" in words:
        return None
    if not flag and not os.environ.get("FLEETCTL_SERVER") and not _has_contexts():
        return None
    from fleetctl.cli.team.contexts import chosen_server

    chosen = chosen_server(flag)
    if chosen is None:
        return None
    if verb not in OVER_SERVER:
        raise UsageError(
            f"`fleetctl {verb}` does not work over a server yet",
            hint="run it on the machine of the controller; `--server local` uses this one",
        )
    from fleetctl.cli.team.server_fleet import ServerFleet

    return REMOTE.set(ServerFleet(chosen.server, chosen.token))


def _has_contexts() -> bool:
    base = os.environ.get("XDG_CONFIG_HOME", "")
    root = base if base.startswith("/") else Path("~/.config").expanduser()
    return Path(root, "fleetctl", "contexts.json").exists()
