"""What an API server answers that is not what was asked for, in our words. No I/O.

Called by connection.py. `ApiError` is an answer that a caller may understand (not there, conflict,
invalid, too old); what no caller can do anything about is Unavailable or Refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from fleetctl.common.errors import FleetctlError, Refused, Unavailable
from fleetctl.common.install import install_hint

NOT_FOUND, CONFLICT, GONE, INVALID, FORBIDDEN = 404, 409, 410, 422, 403
UNAUTHORIZED, TOO_MANY = 401, 429
# The server says that it did not, or may not have, worked on it: to be asked again.
PASSING = frozenset({TOO_MANY, 500, 502, 503, 504})
MESSAGE_CHARS_MAX = 1000


class ApiError(FleetctlError):
    """code: of HTTP. reason: the server's word for it, such as `AlreadyExists` or `Expired`."""

    def __init__(self, code: int, reason: str, message: str) -> None:
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
        """The resourceVersion is too old to watch or to go on listing from: list anew."""
        return self.code == GONE


def error_of(code: int, body: bytes, what: str, retry_after_s: float = 0.0) -> FleetctlError:
    """The error that an answer with this status is. what: `GET /api/v1/...`, without the query."""
    status = status_in(body)
    reason = str(status.get("reason") or "")
    message = str(status.get("message") or body[:200].decode("utf-8", "replace") or f"HTTP {code}")
    told = f"the API server answers to {what}: {message[:MESSAGE_CHARS_MAX]}"
    if code == UNAUTHORIZED:
        return Unavailable(
            f"the Kubernetes API server does not know who asks ({told})",
            reason="Unauthorized",
            hint="`kubectl auth whoami` with the same kubeconfig tells whether its login is over",
            account=True,
        )
    if code == FORBIDDEN:
        # A quota, or an admission webhook, refuses with 403 too; only the words tell them apart.
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
    """Of a watch's ERROR event, which holds a Status."""
    code = status.get("code")
    known = code if isinstance(code, int) else 500
    return error_of(known, json.dumps(status).encode(), "watch")


def status_in(body: bytes) -> Mapping[str, object]:
    """The Status that a refusal is; empty for what some proxy between us wrote."""
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def seconds_of(header: str | None) -> float:
    """`Retry-After`, where it is seconds; 0.0 for a date and for none."""
    try:
        return max(0.0, float(header or 0.0))
    except ValueError:
        return 0.0


def no_package(error: ImportError) -> Refused:
    return Refused(
        f"a Kubernetes cluster needs the package `{error.name}`, which is not installed",
        hint=install_hint("kubernetes"),
    )
