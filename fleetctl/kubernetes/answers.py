"""Translates an API server's error replies into our errors. No I/O.

Called by connection.py. `ApiError` is a reply that a caller may understand (not there, conflict,
invalid, too old); a reply that no caller can handle is Unavailable or Refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from fleetctl.common.errors import FleetctlError, Refused, Unavailable
from fleetctl.common.install import install_hint

NOT_FOUND = 404
CONFLICT = 409
GONE = 410
INVALID = 422
FORBIDDEN = 403
UNAUTHORIZED = 401
TOO_MANY = 429
# Statuses of requests that the server has not, or may not have, worked on: to be sent again.
PASSING = frozenset({TOO_MANY, 500, 502, 503, 504})
MESSAGE_CHARS_MAX = 1000


class ApiError(FleetctlError):
    """An error reply. code: status of HTTP. reason: the server's word, such as `AlreadyExists` or
    `Expired`.
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason

    @property
    def not_found(self) -> bool:
        return self.code == NOT_FOUND

    @property
    def exists(self) -> bool:
        return self.code == CONFLICT and self.reason == "AlreadyExists"

    @property
    def conflict(self) -> bool:
        """The object changed after it was read, or another manager owns a field."""
        return self.code == CONFLICT and self.reason != "AlreadyExists"

    @property
    def expired(self) -> bool:
        """The resourceVersion is too old to watch or to go on listing from: list again."""
        return self.code == GONE


def error_of(
    code: int,
    body: bytes,
    what: str,
    retry_after_s: float = 0.0,
) -> FleetctlError:
    """Returns the error for a reply with this status. what: `GET /api/v1/...`, without
    the query.
    """
    status = status_in(body)
    reason = str(status.get("reason") or "")
    message = str(status.get("message") or body[:200].decode("utf-8", "replace") or f"HTTP {code}")
    told = f"the API server answers to {what}: {message[:MESSAGE_CHARS_MAX]}"
    if code == UNAUTHORIZED:
        return Unavailable(
            f"the Kubernetes API server does not accept the login ({told})",
            reason="Unauthorized",
            hint="`kubectl auth whoami` with the same kubeconfig shows whether its login expired",
            account=True,
        )
    if code == FORBIDDEN:
        # A quota, or an admission webhook, refuses with 403 too; only the message differs.
        full = "exceeded quota" in message
        return Unavailable(
            told,
            reason="Quota" if full else "Forbidden",
            account=True,
            hint="" if full else "the role that is bound to its service account lacks this",
        )
    if code in PASSING:
        limited = "RateLimited" if code == TOO_MANY else "Unavailable"
        return Unavailable(told, retry_after_s=retry_after_s, reason=limited)
    return ApiError(code, reason, told)


def event_error(status: Mapping[str, object]) -> FleetctlError:
    """Returns the error of a watch's ERROR event, which holds a Status."""
    code = status.get("code")
    known = code if isinstance(code, int) else 500
    return error_of(known, json.dumps(status).encode(), "watch")


def status_in(body: bytes) -> Mapping[str, object]:
    """Returns the Status of a refusal; empty for the text of some proxy between us."""
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    if isinstance(found, dict):
        return found
    return {}


def seconds_of(header: str | None) -> float:
    """Returns the seconds of `Retry-After`; 0.0 for a date or a missing header."""
    try:
        return max(0.0, float(header or 0.0))
    except ValueError:
        return 0.0


def no_package(error: ImportError) -> Refused:
    return Refused(
        f"a Kubernetes cluster needs the package `{error.name}`, which is not installed",
        hint=install_hint("kubernetes"),
    )
