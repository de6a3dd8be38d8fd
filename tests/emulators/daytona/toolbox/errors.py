"""Failures of the toolbox in the shape of its published `ErrorResponse`, and replies as JSON.

Every handler below raises these; the toolbox turns them into answers. `code` is a word of the
published `DaemonErrorCode`, from which the SDK chooses its exception.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime

from aiohttp import web

DAEMON = "DAYTONA_DAEMON"
PROXY = "DAYTONA_PROXY"

_CODE_OF_STATUS: Mapping[int, str] = {
    400: "BAD_REQUEST",
    401: "UNAUTHORIZED",
    403: "FORBIDDEN",
    404: "NOT_FOUND",
    408: "REQUEST_TIMEOUT",
    409: "CONFLICT",
    410: "GONE",
    422: "UNPROCESSABLE_ENTITY",
}


class ToolboxError(Exception):
    def __init__(
        self, status: int, message: str, *, code: str | None = None, source: str = DAEMON
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code or _CODE_OF_STATUS.get(status, "INTERNAL_SERVER_ERROR")
        self.source = source

    def body(self, *, method: str, path: str) -> dict[str, object]:
        return {
            "source": self.source,
            "statusCode": self.status,
            "message": str(self),
            "code": self.code,
            "timestamp": timestamp(),
            "path": path,
            "method": method,
        }


def bad_request(message: str) -> ToolboxError:
    return ToolboxError(400, message)


def of_os_error(error: OSError, what: str = "") -> ToolboxError:
    """What the daemon answers when a file is not usable; `what` names the attempt."""
    reason = (error.strerror or str(error)).lower()
    text = f"{what}: {reason}" if what else reason
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return ToolboxError(404, text, code="FILE_NOT_FOUND")
    if isinstance(error, PermissionError):
        return ToolboxError(403, text, code="FILE_ACCESS_DENIED")
    if isinstance(error, FileExistsError):
        return ToolboxError(409, text)
    return ToolboxError(400, text)


def timestamp() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def reply(data: object, *, status: int = 200) -> web.Response:
    """Compact, as Go writes it: clients have been seen to search the text of an error's body."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    return web.Response(text=text, status=status, content_type="application/json")
