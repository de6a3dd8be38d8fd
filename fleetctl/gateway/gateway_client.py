"""The gateway as the controller sees it: a process beside it, started on demand, and the requests
that reach it over its Unix socket.

The process outlives the controller, as local runs do. Nothing heavy is imported, for the engine
loads this file.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from fleetctl.common.errors import Unavailable
from fleetctl.common.event_loop import VARIABLE as LOOP
from fleetctl.common.install import install_hint
from fleetctl.common.proxies import NAMES as PROXIES
from fleetctl.common.tokens import gateway_token

if TYPE_CHECKING:
    from aiohttp import ClientSession


# In the gateway's own directory. The name of a Unix socket's path is limited to some 100 bytes.
SOCKET = "sock"
PORT = "port"
KEY = "key"
LEDGER = "ledger.db"
DIRECTORY = "gateway"  # below FLEETCTL_HOME

LOG = "log"
UP_S = 15.0  # from the start of the process to its first answer
LOOK_S = 0.05
ASK_S = 10.0
NOT_READY = "EndpointNotReady"
EXTRA = "endpoints"
# The variables of our environment that the process needs. Keys of services are not among them.
_PASSED = (
    *("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    *PROXIES,
    LOOP,
)


@dataclass(frozen=True, slots=True)
class EndpointConfig:
    """An endpoint as the gateway is to serve it.

    spec: as a manifest has it, with the addresses of servers that are Functions. key: key of its
    servers, or empty; keys: by URL, the keys of a Function's containers; both kept in memory alone.
    stays: the gateway keeps the addresses and keys that it has.
    """

    name: str
    namespace: str
    spec: Mapping[str, Any]
    key: str = field(default="", repr=False)
    keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    stays: bool = False


@dataclass(frozen=True, slots=True)
class EndpointGrant:
    """A run that may call. tree: the run whose limits count: itself, or the one at the root."""

    run: str
    tree: str
    uid: str
    object: str
    namespace: str
    endpoints: tuple[str, ...]
    traceparent: str = ""  # of the run's attempt; empty without a trace


@dataclass(frozen=True, slots=True)
class SharedCap:
    """The most in USD that all calls of these objects, by uid, may ever come to together."""

    uids: tuple[str, ...]
    usd: float

    def total_usd(self, usd_of: Callable[[str], float]) -> float:
        return sum(map(usd_of, self.uids))


class Gateway(Protocol):
    """Raises Unavailable while the gateway does not answer or cannot be started."""

    async def up(self) -> bool:
        """Starts the gateway unless it runs; returns True if it has just started, without the state
        that it received before.
        """
        ...

    async def serve(self, endpoints: Sequence[EndpointConfig]) -> None:
        """Sends all endpoints; they replace the former ones."""
        ...

    async def grant(
        self, grants: Sequence[EndpointGrant], caps: Sequence[SharedCap]
    ) -> Mapping[str, float]:
        """Sends all grants and every cap; they replace the former ones. Returns the cost of each
        object's calls, holds included, by uid.
        """
        ...

    async def usage(self, after: int, *, wait_s: float) -> tuple[int, Sequence[Mapping[str, Any]]]:
        """Totals of each run and endpoint that changed after `after`, and where to go on from."""
        ...

    async def health(self, *, max_age_s: float) -> Sequence[Mapping[str, Any]]:
        """Returns the health of each endpoint; servers whose last answer is older are probed."""
        ...

    def access(self, run: str) -> tuple[str, str]:
        """Returns (base URL on this machine, token) of a run. Known once the gateway is up."""
        ...

    async def close(self, *, leave: bool) -> None:
        """Closes the client. leave: lets the gateway go on for the runs that call it."""
        ...


# For hundreds a second: asdict copies every value.
_OF_A_GRANT = tuple(it.name for it in fields(EndpointGrant))
_fields = attrgetter(*_OF_A_GRANT)


class GatewayProcess:
    """The process of the gateway. directory: its own, made here (0700)."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._session: ClientSession | None = None
        self._pid = 0  # of the process that answered last
        self._found: tuple[str, bytes] | None = None  # its base URL and key
        self._child: subprocess.Popen[bytes] | None = None
        # The grants that the gateway acknowledged, and the version it gave them.
        self._granted: Mapping[str, EndpointGrant] = {}
        self._version = ""

    async def up(self) -> bool:
        if find_spec("aiohttp") is None:
            message = "the gateway of endpoints needs aiohttp, which is not installed here"
            raise Unavailable(message, reason=NOT_READY, hint=install_hint(EXTRA))
        known = self._pid
        until_s = asyncio.get_running_loop().time() + UP_S
        self._reap()
        spawned = False
        while True:
            try:
                found = await self._ask("GET", "/ping")
            except Unavailable:
                if not spawned and not self._lives():
                    self._spawn()
                    spawned = True
            else:
                self._pid = int(found["pid"])
                if self._pid != known:
                    self._found = None
                return self._pid != known
            if asyncio.get_running_loop().time() > until_s:
                message = "the gateway of endpoints did not become ready"
                hint = f"its log is `{self._directory / LOG}`"
                raise Unavailable(message, reason=NOT_READY, hint=hint)
            await asyncio.sleep(LOOK_S)

    async def serve(self, endpoints: Sequence[EndpointConfig]) -> None:
        rows = [asdict(it) for it in endpoints]
        await self._ask("PUT", "/endpoints", {"endpoints": rows})

    async def grant(
        self, grants: Sequence[EndpointGrant], caps: Sequence[SharedCap]
    ) -> Mapping[str, float]:
        """Sends only the changes: hundreds of grants stay when a few begin and end. A gateway with
        another state than we expect reports that, and gets the whole list.
        """
        wanted = {it.run: it for it in grants}
        rows = [asdict(it) for it in caps]
        since = self._version
        self._version = ""
        found: Mapping[str, Any] = {}
        if since:
            ended = [run for run in self._granted if run not in wanted]
            new = _list_changed(wanted, self._granted)
            body = {"since": since, "grants": new, "ended": ended, "caps": rows}
            found = await self._ask("PUT", "/grants", body)
        if not found.get("version"):
            whole = {"grants": _list_changed(wanted, {}), "caps": rows}
            found = await self._ask("PUT", "/grants", whole)
        self._granted, self._version = wanted, str(found["version"])
        totals: Mapping[str, float] = found["totals"]
        return totals

    async def usage(self, after: int, *, wait_s: float) -> tuple[int, Sequence[Mapping[str, Any]]]:
        query = f"/usage?after={after}&wait={wait_s:g}"
        found = await self._ask("GET", query, within_s=wait_s + ASK_S)
        return int(found["seq"]), found["rows"]

    async def health(self, *, max_age_s: float) -> Sequence[Mapping[str, Any]]:
        found = await self._ask("GET", f"/health?max_age={max_age_s:g}", within_s=3 * ASK_S)
        rows: Sequence[Mapping[str, Any]] = found["endpoints"]
        return rows

    def access(self, run: str) -> tuple[str, str]:
        if self._found is None:
            try:
                port = int((self._directory / PORT).read_text())
                key = (self._directory / KEY).read_bytes()
            except (OSError, ValueError) as error:
                message = f"the gateway of endpoints cannot be found: {type(error).__name__}"
                raise Unavailable(message, reason=NOT_READY) from error
            self._found = f"http://127.0.0.1:{port}", key
        url, key = self._found
        return url, gateway_token(key, run)

    async def close(self, *, leave: bool) -> None:
        if self._session is None:
            return
        if not leave:
            with suppress(Unavailable):  # it has ended by itself
                await self._ask("POST", "/bye")
        await self._session.close()
        self._session = None

    # -- the process -------------------------------------------------------------------------------

    def _spawn(self) -> None:
        try:
            self._directory.mkdir(
                mode=0o700,
                parents=True,
                exist_ok=True,
            )
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            log = os.open(self._directory / LOG, flags, 0o600)
        except OSError as error:
            message = f"the gateway of endpoints has no directory: {error.strerror}"
            raise Unavailable(message, reason=NOT_READY) from error
        names = [it for it in os.environ if it in _PASSED or it.startswith(("PYTHON", "OTEL_"))]
        try:
            # -P: the directory that it starts in must not shadow modules of ours.
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-m", "fleetctl.gateway", str(self._directory)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._directory,
                env={name: os.environ[name] for name in names},
                start_new_session=True,
            )
        except OSError as error:
            message = f"the gateway of endpoints cannot be started: {error.strerror}"
            raise Unavailable(message, reason=NOT_READY) from error
        finally:
            os.close(log)

    def _lives(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def _reap(self) -> None:
        if self._child is not None and self._child.poll() is not None:
            self._child = None

    # -- its socket --------------------------------------------------------------------------------

    async def _ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        within_s: float = ASK_S,
    ) -> Mapping[str, Any]:
        from aiohttp import ClientError, ClientSession, ClientTimeout, UnixConnector

        if self._session is None:
            connector = UnixConnector(str(self._directory / SOCKET))
            self._session = ClientSession(connector=connector, trust_env=False)
        try:
            async with self._session.request(
                method, f"http://gateway{path}", json=body, timeout=ClientTimeout(within_s)
            ) as reply:
                if reply.status >= 400:
                    message = f"the gateway of endpoints answered {reply.status}"
                    raise Unavailable(message, reason=NOT_READY)
                found: Mapping[str, Any] = await reply.json()
                return found
        except (ClientError, OSError, TimeoutError, ValueError) as error:
            message = f"the gateway of endpoints does not answer: {type(error).__name__}"
            raise Unavailable(message, reason=NOT_READY) from error


def _list_changed(
    wanted: Mapping[str, EndpointGrant], known: Mapping[str, EndpointGrant]
) -> list[dict[str, Any]]:
    """Returns the rows of the grants that differ from the known ones."""
    return [
        dict(zip(_OF_A_GRANT, _fields(grant), strict=True))
        for run, grant in wanted.items()
        if known.get(run) != grant
    ]


_: type[Gateway] = GatewayProcess
