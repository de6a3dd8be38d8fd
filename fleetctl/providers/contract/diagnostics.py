"""The results that `fleetctl doctor` gets from a provider about the machine and the account."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from fleetctl.common.errors import Refused, Unavailable
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


def explain_no_access(topic: str, error: Refused | Unavailable, fix: str) -> CheckResult:
    """Returns the check of a server that refuses, or that cannot be reached; then `fix` helps."""
    if isinstance(error, Unavailable) and not error.account:
        return CheckResult(topic, "access", False, f"unreachable: {error}", fix, away=True)
    return CheckResult(topic, "access", False, str(error), error.hint)


# called with the state directory and the account that is looked at
Check = Callable[[Path, Account], Awaitable[list[CheckResult]]]
