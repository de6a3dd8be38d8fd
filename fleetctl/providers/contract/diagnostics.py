"""What `fleetctl doctor` hears from a provider about the machine and the account."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from fleetctl.common.errors import Unavailable
from fleetctl.providers.contract.account import Account


class Finding(NamedTuple):
    """One line. `says` never holds a credential; `fix` is the exact command that would help."""

    topic: str  # a provider's name, or what it shares with others: `uv`, `git`
    what: str  # such as `package`, `token`, `server`
    ok: bool
    says: str
    fix: str = ""
    away: bool = False  # what is not well is that a service does not answer


def unreachable(topic: str, error: Unavailable, fix: str) -> Finding:
    """error: names the server and says what was heard of it."""
    return Finding(topic, "access", False, f"unreachable: {error}", fix, away=True)


# called with the state directory and the account that is looked at
Check = Callable[[Path, Account], Awaitable[list[Finding]]]
