"""Talks to a server of a team: the store's rows, logs, and changes, for the verbs of this
process. One connection, which is kept open. Called through `common/remote.py`.
"""

from __future__ import annotations

import http.client
import inspect
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any
from urllib.parse import urlencode, urlsplit

from fleetctl.common import version
from fleetctl.common.author import AGENT_HEADER, find_agent
from fleetctl.common.errors import (
    Conflict,
    FleetctlError,
    NotFound,
    Refused,
    Unavailable,
    UsageError,
)
from fleetctl.common.version import VERSION_HEADER, versions_fit
from fleetctl.stores.read.reader import Reader
from fleetctl.stores.read.rows import (
    CheckpointRow,
    EventLine,
    LiveRunPrices,
    MetricEnd,
    MetricRow,
    NoticeRow,
    ResourceRow,
    RunRow,
    TaskRow,
)

API = "/api/v1"
PIECE_BYTES = 256 * 1024
JSON, BYTES = "application/json", "application/octet-stream"
WAIT_S = 150.0  # longer than the server waits for its controller
REVISION_EVERY_S = 0.25  # between two looks for a change
LOOPBACK = ("127.0.0.1", "localhost", "::1")
_ERRORS: Mapping[int, type[FleetctlError]] = {
    2: UsageError, 3: Refused, 4: NotFound, 5: Conflict,
}  # fmt: skip


class ApiClient:
    """A server's API. Raises Unavailable where it does not reply, and errors with the exit codes of
    its own."""

    def __init__(self, url: str, token: str = "") -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
            raise UsageError(
                f"`{url[:200]}` is no address of a server", hint="such as https://fleet.example.org"
            )
        if parts.scheme == "http" and token and parts.hostname not in LOOPBACK:
            raise Refused(
                f"a token would go to `{parts.hostname}` in the open",
                hint="use the server's https:// address",
            )
        self.url = url.rstrip("/")
        self._parts = parts
        self._token = token
        self._connection: http.client.HTTPConnection | None = None

    @property
    def headers(self) -> dict[str, str]:
        """Returns the headers of every request."""
        found = {"Accept": JSON, VERSION_HEADER: version.VERSION}
        if agent := find_agent(os.environ):
            found[AGENT_HEADER] = agent
        if caller := os.environ.get("TRACEPARENT"):
            found["traceparent"] = caller
        if self._token:
            found["Authorization"] = f"Bearer {self._token}"
        return found

    def get(self, path: str, /, **query: object) -> tuple[Mapping[str, str], bytes]:
        """Returns (headers, body)."""
        given = {name: value for name, value in query.items() if value not in ("", None)}
        target = f"{API}/{path}" + (f"?{urlencode(given)}" if given else "")
        status, headers, body = self._exchange("GET", target, None)
        if status != 200:
            raise parse_error(status, body)
        return headers, body

    def post(self, verb: str, message: Mapping[str, object]) -> dict[str, object]:
        """Returns the body of the answer, also of a refusing one. Raises for one that is no
        reply of a controller."""
        status, _, body = self._exchange("POST", f"{API}/{verb}", json.dumps(message).encode())
        reply = parse_object(body)
        if not isinstance(reply.get("code"), int):
            raise parse_error(status, body)
        return reply

    def post_bytes(self, verb: str, data: bytes) -> dict[str, object]:
        """Returns the reply to bytes, which are sent again where a kept line had ended: the same
        piece twice is stored once."""
        status, _, body = self._exchange("POST", f"{API}/{verb}", data, sort=BYTES)
        reply = parse_object(body)
        if not isinstance(reply.get("code"), int):
            raise parse_error(status, body)
        return reply

    def post_checked(
        self,
        path: str,
        message: Mapping[str, object],
        **query: object,
    ) -> dict[str, object]:
        """Returns the body of a good answer. Raises the error of any other."""
        target = f"{API}/{path}?{urlencode(query)}"
        status, _, body = self._exchange("POST", target, json.dumps(message).encode())
        if status != 200:
            raise parse_error(status, body)
        return parse_object(body)

    def pieces(self, path: str, /, **query: object) -> Iterator[bytes]:
        """Yields an answer as it comes, on a line of its own. Raises Unavailable where it is cut,
        and the error of an answer that is none."""
        line = self._open_line()
        try:
            line.request("GET", f"{API}/{path}?{urlencode(query)}", headers=self.headers)
            answer = line.getresponse()
            if answer.status != 200:
                raise parse_error(answer.status, answer.read())
            while data := answer.read(PIECE_BYTES):
                yield data
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(f"the line to {self.url} was cut: {error}") from None
        finally:
            line.close()

    def lines(self, verb: str, message: Mapping[str, object]) -> Iterator[Any]:
        """Yields the values of an answer of JSON lines."""
        status, _, body = self._exchange("POST", f"{API}/{verb}", json.dumps(message).encode())
        if status != 200:
            raise parse_error(status, body)
        return map(json.loads, body.splitlines())

    def _exchange(
        self,
        method: str,
        target: str,
        body: bytes | None,
        *,
        sort: str = JSON,
    ) -> tuple[int, Mapping[str, str], bytes]:
        headers = self.headers
        if body is not None:
            headers["Content-Type"] = sort
        # A kept connection may have ended meanwhile; what changes something is never sent twice.
        if method == "POST" and sort == JSON:
            self.close()
        kept = self._connection is not None
        try:
            return self._send(method, target, body, headers)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if kept:
                return self._exchange(method, target, body, sort=sort)
            raise Unavailable(
                f"the server {self.url} does not answer: {error or type(error).__name__}",
                hint="`fleetctl config list` shows which server is used",
            ) from None

    def _send(
        self,
        method: str,
        target: str,
        body: bytes | None,
        headers: Mapping[str, str],
    ) -> tuple[int, Mapping[str, str], bytes]:
        if self._connection is None:
            self._connection = self._open_line()
        self._connection.request(method, target, body, dict(headers))
        answer = self._connection.getresponse()
        self._check_version(answer.getheader(VERSION_HEADER, ""))
        data = answer.read()
        found = {name.lower(): value for name, value in answer.getheaders()}
        if answer.will_close:
            self.close()
        return answer.status, found, data

    def _check_version(self, theirs: str) -> None:
        """Raises Refused for a server that this version does not understand."""
        if versions_fit(version.VERSION, theirs):
            return
        self.close()
        raise Refused(
            f"the server {self.url} is fleetctl {theirs[:40]!a}, and this is {version.VERSION}:"
            " they may be one minor version apart",
            hint="install on the older side the version of the newer one",
        )

    def _open_line(self) -> http.client.HTTPConnection:
        assert self._parts.hostname is not None
        secure = self._parts.scheme == "https"
        sort = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        return sort(self._parts.hostname, self._parts.port, timeout=WAIT_S)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def parse_object(body: bytes) -> dict[str, object]:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def parse_error(status: int, body: bytes) -> FleetctlError:
    """Returns the error that an answer is."""
    reply = parse_object(body)
    errors = reply.get("errors")
    if not isinstance(errors, list):
        return FleetctlError(
            f"the server answered {status}, and no reply of fleetctl",
            hint="is it the address of `fleetctl serve`?",
        )
    code = reply.get("code")
    sort = _ERRORS.get(code if isinstance(code, int) else 1, FleetctlError)
    return sort("\nerror: ".join(map(str, errors)), hint=str(reply.get("hint") or ""))


def _take_first(found: Iterator[Any]) -> Any:
    return next(found, None)


def _task_row(values: list[Any]) -> TaskRow:
    run, attempts, result, older = values[:4]
    return TaskRow(
        _build_row(RunRow, run), attempts, result, tuple(_build_row(RunRow, it) for it in older)
    )


def _build_row(sort: Any, values: list[Any]) -> Any:
    """Returns a row of a server that may be newer: its further fields are left out."""
    return sort(*values[: len(sort._fields)])


def _row_builder(sort: Any) -> Callable[[Any], Any]:
    return partial(_build_row, sort)


# By method of the Reader: each row of the answer, and all together.
_SHAPES: Mapping[str, tuple[Callable[[Any], Any], Callable[[Iterator[Any]], Any]]] = {
    "resources": (_row_builder(ResourceRow), list),
    "resource": (_row_builder(ResourceRow), _take_first),
    "resource_of": (_row_builder(ResourceRow), _take_first),
    "names": (str, list),
    "object_keys": (tuple, iter),
    "all_keys": (tuple, iter),
    "gone": (tuple, iter),
    "namespaces": (tuple, iter),
    "runs": (_row_builder(RunRow), iter),
    "tasks": (_task_row, iter),
    "run": (_row_builder(RunRow), _take_first),
    "owner_of": (str, _take_first),
    "metrics": (_row_builder(MetricRow), iter),
    "samples": (_row_builder(MetricRow), iter),
    "checkpoints": (_row_builder(CheckpointRow), iter),
    "resumed_steps": (int, set),
    "metric_ends": (_row_builder(MetricEnd), list),
    "metric_names": (str, list),
    "points": (tuple, iter),
    "live_runs": (tuple, dict),
    "live_prices": (_row_builder(LiveRunPrices), _take_first),
    "durations": (float, list),
    "durations_in_queue": (float, list),
    "events": (_row_builder(EventLine), list),
    "notices": (_row_builder(NoticeRow), list),
}


class RemoteReader:
    """The methods of the Reader, each a request."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._revision = ""
        self._looked_at_s = 0.0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in _SHAPES:
            raise UsageError(
                "this cannot be read over a server yet", hint="run it on the server's machine"
            )
        return partial(self._query, name)

    def _query(self, name: str, *given: object, **named: object) -> Any:
        bound = inspect.signature(getattr(Reader, name)).bind(None, *given, **named).arguments
        values = {key: value for key, value in bound.items() if key != "self"}
        _, body = self._client.get(f"rows/{name}", args=json.dumps(values, default=list))
        make, gather = _SHAPES[name]
        return gather(make(json.loads(line)) for line in body.splitlines())

    def data_version(self) -> tuple[str, int]:
        """Returns a pair that differs from the one before when the server's store changed."""
        now_s = time.monotonic()
        if now_s - self._looked_at_s >= REVISION_EVERY_S:
            self._looked_at_s = now_s
            self._revision = self._client.get("rows/data_version")[1].decode()
        return self._revision, 0

    def close(self) -> None:
        self._client.close()
