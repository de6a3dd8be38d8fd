"""What the API server refuses, as the Status objects that it answers with."""

from __future__ import annotations

from typing import Any

REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    410: "Expired",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class ApiError(Exception):
    """code: of HTTP; retry_after_s: 0 says nothing about when to ask again."""

    def __init__(
        self,
        code: int,
        message: str,
        *,
        reason: str = "",
        details: dict[str, Any] | None = None,
        retry_after_s: int = 0,
    ) -> None:
        super().__init__(message)
        self.code, self.message = code, message
        self.reason = reason or REASONS.get(code, "")
        self.details = details
        self.retry_after_s = retry_after_s

    def status(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
        }
        details = dict(self.details or {})
        if self.retry_after_s:
            details["retryAfterSeconds"] = self.retry_after_s
        if details:
            body["details"] = details
        return {**body, "code": self.code}


def qualified(plural: str, group: str) -> str:
    return f"{plural}.{group}" if group else plural


def about(name: str, plural: str, group: str) -> dict[str, Any]:
    told = {"name": name, "group": group, "kind": plural}
    return {k: v for k, v in told.items() if v}


def not_found(plural: str, group: str, name: str) -> ApiError:
    message = f'{qualified(plural, group)} "{name}" not found'
    return ApiError(404, message, details=about(name, plural, group))


def no_such_path() -> ApiError:
    return ApiError(404, "the server could not find the requested resource", details={})


def already_exists(plural: str, group: str, name: str) -> ApiError:
    message = f'{qualified(plural, group)} "{name}" already exists'
    return ApiError(409, message, reason="AlreadyExists", details=about(name, plural, group))


def modified(plural: str, group: str, name: str) -> ApiError:
    """The resourceVersion of a write is not that of the object."""
    return conflict(
        plural,
        group,
        name,
        "the object has been modified; please apply your changes to the latest version and"
        " try again",
    )


def conflict(plural: str, group: str, name: str, why: str) -> ApiError:
    message = f'Operation cannot be fulfilled on {qualified(plural, group)} "{name}": {why}'
    return ApiError(409, message, details=about(name, plural, group))


def forbidden(plural: str, group: str, name: str, why: str) -> ApiError:
    subject = qualified(plural, group) + (f' "{name}"' if name else "")
    return ApiError(403, f"{subject} is forbidden: {why}", details=about(name, plural, group))


def invalid(kind: str, group: str, name: str, causes: list[dict[str, str]]) -> ApiError:
    """causes: {reason, message, field} each, as schema.validation makes them."""
    said = [f"{it['field']}: {it['message']}" for it in causes]
    text = said[0] if len(said) == 1 else f"[{', '.join(said)}]"
    details = {**about(name, kind, group), "causes": causes}
    return ApiError(422, f'{qualified(kind, group)} "{name}" is invalid: {text}', details=details)


def expired(message: str) -> ApiError:
    return ApiError(410, message)
