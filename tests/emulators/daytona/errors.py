"""What the platform answers when it will not: a status, a message, and the body around them."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

REASONS = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    409: "Conflict",
    429: "Too Many Requests",
}
CHANGING = "Sandbox state change in progress"


class Refused(Exception):
    """Raised by a route; the server's middleware turns it into an answer."""

    def __init__(
        self, status: int, message: str, *, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = dict(headers or {})


def answer(refused: Refused, request: web.Request, at: str) -> web.Response:
    body = {
        "path": request.path,
        "timestamp": at,
        "statusCode": refused.status,
        "error": REASONS.get(refused.status, "Error"),
        "message": refused.message,
        "source": "DAYTONA_API",
    }
    return web.json_response(body, status=refused.status, headers=refused.headers)


def bad_request(message: str) -> Refused:
    return Refused(400, message)


def not_found(message: str) -> Refused:
    return Refused(404, message)


def conflict(message: str) -> Refused:
    return Refused(409, message)
