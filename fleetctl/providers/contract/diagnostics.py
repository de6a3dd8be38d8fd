"""The results that `fleetctl doctor` gets from a provider about the machine and the account."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from fleetctl.common.errors import Unavailable
from fleetctl.providers.contract.account import Account


class CheckResult(NamedTuple):
    """A line of `doctor`. `says` never holds a credential; `fix` is the exact command that would
    help.
    """

    topic: str  # a provider's name, or what it shares with others: `uv`, `git`
    what: str  # such as `package`, `token`, `server`
    ok: bool
    says: str
    fix: str = ""
    away: bool = False  # the fault is that a service does not answer


def report_unreachable(
    topic: str,
    error: Unavailable,
    fix: str,
) -> CheckResult:
    """Returns the check of an unreachable server. error: names the server and its answer."""
    return CheckResult(
        topic,
        "access",
        False,
        f"unreachable: {error}",
        fix,
        away=True,
    )


# called with the state directory and the account that is looked at
Check = Callable[[Path, Account], Awaitable[list[CheckResult]]]
