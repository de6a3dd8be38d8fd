"""What the service refuses: a status of HTTP, and the one message that it gives a reason with."""

from __future__ import annotations

from typing import Any


class Refused(Exception):
    """code: `extensions.code`, if any. path: of the field that failed, once it is known."""

    def __init__(self, status: int, message: str, *, code: str = "") -> None:
        super().__init__(message)
        self.status, self.message, self.code = status, message, code
        self.path: str | None = None

    def body(self) -> dict[str, Any]:
        """As the service words it."""
        error: dict[str, Any] = {"message": self.message}
        if self.path is not None:
            error["path"] = [self.path]
        if self.code:
            error["extensions"] = {"code": self.code}
        data = None if self.path is None else {self.path: None}
        return {"errors": [error], "data": data}


def not_logged_in() -> Refused:
    return Refused(401, "user is not logged in", code="PERMISSION_ERROR")


def permission_denied() -> Refused:
    return Refused(403, "permission denied", code="PERMISSION_ERROR")
