"""A server as the verbs of this process use it: the parts of common/remote.py, each by requests of
the one client.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote

from fleetctl.cli.team.api_client import ApiClient, RemoteReader, parse_object
from fleetctl.common.remote import RemoteFleet
from fleetctl.stores.read.query import QueryAnswer

if TYPE_CHECKING:
    from fleetctl.providers.rundir.kept_outputs import KeptOutputs


class ServerSql:
    """The views of a server's store for SQL, with the methods of SqlQuery."""

    def __init__(self, client: ApiClient, timeout_s: float | None) -> None:
        self._client = client
        self._timeout_s = timeout_s

    def __enter__(self) -> ServerSql:
        return self

    def __exit__(self, *error: object) -> None:
        self._client.close()

    def ask(self, sql: str, parameters: Sequence[object] = ()) -> QueryAnswer:
        """Runs a query on the server. Raises UsageError for what is not a query."""
        wait = {} if self._timeout_s is None else {"timeoutSeconds": self._timeout_s}
        message = {"sql": sql, "parameters": list(parameters), **wait}
        lines = self._client.lines("query", message)
        columns = tuple(next(lines))
        return QueryAnswer(columns, (tuple(map(_decode_blob, row)) for row in lines))

    def columns(self, view: str) -> tuple[str, ...]:
        return self.ask(f"SELECT * FROM {view} LIMIT 0").columns  # noqa: S608 - one of VIEWS


def _decode_blob(value: object) -> object:
    """Returns a value of a row: JSON has no bytes."""
    return base64.b64decode(value["base64"]) if isinstance(value, dict) else value


class ServerLog:
    """The output of a run on the server."""

    def __init__(self, client: ApiClient, run: str, node: int, service: str) -> None:
        self._client = client
        self._path = f"run-logs/{quote(run, safe='')}"
        self._which = {"node": node, "service": service}

    def read(self, offset: int) -> tuple[bytes, int]:
        headers, data = self._client.get(self._path, offset=offset, **self._which)
        return data, int(headers.get("x-next-offset", offset))

    def times(self) -> list[tuple[int, float]]:
        _, data = self._client.get(self._path, times="true", **self._which)
        return [(at, when_s) for at, when_s in json.loads(data)[1:]]

    def exists(self) -> bool:
        headers, _ = self._client.get(self._path, offset=1 << 52, **self._which)
        return headers.get("x-exists") == "true"

    def past_s(self) -> float | None:
        headers, _ = self._client.get(self._path, offset=1 << 52, **self._which)
        text = headers.get("x-past", "")
        return float(text) if text else None


class ServerFleet:
    """A server as the verbs use it."""

    def __init__(self, url: str, token: str) -> None:
        self.client = ApiClient(url, token)
        self.url = self.client.url

    def reader(self) -> RemoteReader:
        return RemoteReader(self.client)

    def send(self, message: Mapping[str, object]) -> dict[str, object]:
        verb = str(message.get("verb"))
        if verb == "ping":
            _, body = self.client.get("whoami")
            return {**parse_object(body), "ok": True, "ready": True, "pid": 0}
        fields = {name: value for name, value in message.items() if name != "verb"}
        if verb == "retry" and fields.get("which") == "rerun":
            return self.client.post("rerun", fields)
        return self.client.post(verb, fields)

    def sql(self, timeout_s: float | None) -> ServerSql:
        return ServerSql(self.client, timeout_s)

    def log(self, run: str, node: int, service: str) -> ServerLog:
        return ServerLog(self.client, run, node, service)

    def outputs(self, run: str) -> KeptOutputs | None:
        from fleetctl.cli.team.remote_files import RemoteOutputs

        return RemoteOutputs.of_run(self.client, run)


_: type[RemoteFleet] = ServerFleet
