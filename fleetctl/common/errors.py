"""The errors that cross a seam. Every floor above `controllers` may raise them; only `cli` prints
them.

Three sorts (the user's, the world's, ours); ours are assertions and have no class here.
"""

from __future__ import annotations

from typing import Any


class FleetctlError(Exception):
    """An error with a message written for users; `hint` is one line to copy, or empty. problems:
    findings that the message consists of, each with its own hint.
    """

    exit_code = 1
    problems: tuple[Any, ...] = ()  # ManifestProblem

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(FleetctlError):
    """The command line or a manifest has a value that cannot be meant."""

    exit_code = 2


class NotFound(FleetctlError):
    """No such resource, task or file."""

    exit_code = 4


class Conflict(FleetctlError):
    """The thing changed after it was read."""

    exit_code = 5


class Refused(FleetctlError):
    """The user must change something before this can work: the request is at fault, not the caller
    or the server. Certain: no run was started. A provider's refusal is believed when a second look
    confirms it; then it is final.
    """

    exit_code = 3


class Unavailable(FleetctlError):
    """The world cannot serve this now. Certain: no run was started. No attempt is consumed.

    retry_after_s: seconds until the next try makes sense; 0.0 leaves it to the caller's backoff.
    reason: one CamelCase word for a status, such as `NoCapacity` or `RateLimited`.
    account: the reply concerns the account (key, permission, suspension, quota), so every start
    that would use it waits too; False for the service, its network, or unknown words.
    perhaps_made: no run began, but a machine for it may have been made before this reply.
    """

    def __init__(
        self,
        message: str,
        *,
        retry_after_s: float = 0.0,
        reason: str = "Unavailable",
        hint: str = "",
        account: bool = False,
        perhaps_made: bool = False,
    ) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s
        self.reason = reason
        self.account = account
        self.perhaps_made = perhaps_made


class StoreError(FleetctlError):
    """The store cannot be opened or written: wrong version, foreign, corrupt, full, not local.

    final: this process will never write it again; only another opening may.
    """

    final = False
