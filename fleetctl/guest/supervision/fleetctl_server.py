"""Stands before the server of a Function with a `port`: starts it, waits until it is ready, and
passes only requests with the key.

Shipped into containers as a module of its own, which uses the standard library of Python 3.9
alone. At Modal `run` is the web function, and the container comes and goes by itself; on this
machine the module is a program that listens always and runs the server only while requests come.
The settings are in FLEETCTL_SERVER, as JSON: see `Order`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import os
import signal
import subprocess
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    # key: of requests. port: of the server; host, listen: of this. setup: commands that run before
    # its first start. argv, workdir, env: of the server. ready: a path, or "". startup_s: until
    # it must be ready. idle_s: without a request, until it is ended; 0: never, the container is.
    Order = dict[str, Any]

ORDER = "FLEETCTL_SERVER"
KEY = "x-fleetctl-key"  # header of a request; it does not reach the server
STATE = "X-Fleetctl-Server"  # header of our own answers: up, failed, key
READY_PATH = "/.fleetctl/ready"  # answered here, once the server is ready or cannot be
HEAD_BYTES_MAX = 65_536
TAIL_BYTES = 3_000  # of the server's output, reported when it does not become ready
LOOK_FIRST_S = 0.02
LOOK_MOST_S = 1.0
ASK_S = 5.0  # one look at whether it is ready
FAILED_STAYS_S = 5.0  # after it reported its failure: the next request finds a new container
FAILED_UNHEARD_S = 120.0
GRACE_S = 5.0  # of the server, from TERM to KILL
PIECE_BYTES = 65_536


def run() -> None:
    """Starts the listener as a process of its own, and returns at once; Modal's web function."""
    subprocess.Popen([sys.executable, os.path.abspath(__file__)], stdin=subprocess.DEVNULL)


class Failed(Exception):
    """The server does not become ready; the message has the reason and the end of its output."""


class Server:
    """The process behind: started at the first request, ended after a time without requests."""

    def __init__(self, order: Order, env: dict[str, str]) -> None:
        self.order = order
        self._env = env
        self.process: asyncio.subprocess.Process | None = None
        self._tail = b""
        self._starting = asyncio.Lock()
        self._setup: list[list[str]] = list(order.get("setup") or ())
        self._reading: asyncio.Task[None] | None = None
        self.ready = False

    async def up(self) -> None:
        """Returns once the server is ready. Raises Failed."""
        async with self._starting:
            if self.ready and self.process is not None and self.process.returncode is None:
                return
            await self.end()
            await self._start()
            self.ready = True

    async def _start(self) -> None:
        self._tail = b""
        until_s = time.monotonic() + self.order["startup_s"]
        pause_s = LOOK_FIRST_S
        while self._setup:
            await self._set_up(self._setup[0])
            self._setup.pop(0)
        try:
            self.process = await asyncio.create_subprocess_exec(
                *self.order["argv"],
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                cwd=self.order.get("workdir") or None,
                env=self._env,
                start_new_session=True,
            )
        except OSError as error:
            raise Failed(f"`{self.order['argv'][0]}` cannot be started: {error.strerror}") from None
        self._reading = asyncio.ensure_future(self._read(self.process))
        while not await self._answers():
            if self.process.returncode is not None:
                await asyncio.wait({self._reading}, timeout=1.0)
                raise Failed(self._with_output(f"it exited with code {self.process.returncode}"))
            if time.monotonic() > until_s:
                await self.end()
                raise Failed(
                    self._with_output(f"it was not ready within {self.order['startup_s']:g} s")
                )
            await asyncio.sleep(pause_s)
            pause_s = min(LOOK_MOST_S, pause_s * 1.5)

    async def _set_up(self, argv: list[str]) -> None:
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=asyncio.subprocess.DEVNULL, env=self._env
        )
        if code := await process.wait():
            raise Failed(f"its source cannot be fetched: `{argv[0]}` exited with code {code}")

    async def _answers(self) -> bool:
        path = self.order.get("ready") or ""
        try:
            status = await asyncio.wait_for(_probe_status(self.order["port"], path), ASK_S)
        except (OSError, asyncio.TimeoutError, ValueError, EOFError):
            return False
        return 200 <= status < 400

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        """Copies the server's output to the container's, and keeps its end."""
        assert process.stdout is not None
        while data := await process.stdout.read(PIECE_BYTES):
            self._tail = (self._tail + data)[-TAIL_BYTES:]
            with contextlib.suppress(OSError):
                os.write(1, data)

    def _with_output(self, what: str) -> str:
        text = self._tail.decode(errors="replace").strip()
        if text:
            return f"{what}; its output ends:\n{text}"
        return f"{what}, and printed nothing"

    async def end(self) -> None:
        self.ready = False
        process, self.process = self.process, None
        if process is None or process.returncode is not None:
            return
        _signal_group(process.pid, signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), GRACE_S)
        except asyncio.TimeoutError:
            _signal_group(process.pid, signal.SIGKILL)
            await process.wait()


class Guard:
    def __init__(self, order: Order, env: dict[str, str]) -> None:
        self.server = Server(order, env)
        self._order = order
        self._asking = 0
        self._asked_at_s = time.monotonic()
        self._failed = ""
        self.over = asyncio.Event()

    async def run(self) -> None:
        lasts = not self._order["idle_s"]
        if lasts:
            try:
                await self.server.up()
            except Failed as failed:
                # The port opens all the same, so that requests get the reason.
                self._failed = str(failed)
                _print_line(f"the server did not become ready: {self._failed}")
                asyncio.get_running_loop().call_later(FAILED_UNHEARD_S, self.over.set)
        listener = await asyncio.start_server(
            self._handle, self._order["host"], self._order["listen"], limit=HEAD_BYTES_MAX
        )
        watch = asyncio.ensure_future(self._outlive() if lasts else self._idle())
        try:
            await self.over.wait()
        finally:
            watch.cancel()
            listener.close()
            await self.server.end()

    async def _outlive(self) -> None:
        """Ends the container when its server has ended: it takes no more requests."""
        process = self.server.process
        if not self._failed and process is not None:
            _print_line(f"the server exited with code {await process.wait()}")
            self.over.set()

    async def _idle(self) -> None:
        idle_s = self._order["idle_s"]
        while True:
            left_s = self._asked_at_s + idle_s - time.monotonic()
            await asyncio.sleep(max(left_s, 0.05))
            if not self._asking and time.monotonic() >= self._asked_at_s + idle_s:
                await self.server.end()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._asking += 1
        try:
            await self._answer(reader, writer)
        except (OSError, EOFError, asyncio.LimitOverrunError, ValueError):
            pass  # the client has left, or speaks no HTTP
        finally:
            self._asking -= 1
            self._asked_at_s = time.monotonic()
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head[:-4].split(b"\r\n")
        if not hmac.compare_digest(_find_header(lines, KEY), self._order["key"].encode()):
            return _write_reply(writer, 401, "key", "this server is asked through its Endpoint")
        if self._failed:
            asyncio.get_running_loop().call_later(FAILED_STAYS_S, self.over.set)
            return _write_reply(writer, 503, "failed", self._failed)
        try:
            await self.server.up()
        except Failed as failed:
            return _write_reply(writer, 503, "failed", str(failed))
        if lines[0].split(b" ")[1:2] == [READY_PATH.encode()]:
            return _write_reply(writer, 200, "up", "ready")
        behind, to = await asyncio.open_connection("127.0.0.1", self._order["port"])
        try:
            to.write(_rewrite_head(lines))
            sending = asyncio.ensure_future(_copy_stream(reader, to))
            coming = asyncio.ensure_future(_copy_stream(behind, writer))
            await asyncio.wait({sending, coming}, return_when=asyncio.FIRST_COMPLETED)
            for task in (sending, coming):
                task.cancel()
            await asyncio.gather(sending, coming, return_exceptions=True)
        finally:
            to.close()


async def _copy_stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(PIECE_BYTES):
        writer.write(data)
        await writer.drain()


async def _probe_status(port: int, path: str) -> int:
    """Returns the status of a GET; 200 for a connection where there is no path."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        if not path:
            return 200
        writer.write(
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode()
        )
        return int((await reader.readline()).split()[1])
    except IndexError:
        raise ValueError("no status line") from None
    finally:
        writer.close()


def _find_header(lines: list[bytes], name: str) -> bytes:
    for line in lines[1:]:
        key, _, value = line.partition(b":")
        if key.strip().lower() == name.encode():
            return value.strip()
    return b""


def _rewrite_head(lines: list[bytes]) -> bytes:
    """Rewrites a request's head: one request a connection; our key stays here."""
    ours = (KEY.encode(), b"connection")
    kept = [it for it in lines if it.partition(b":")[0].strip().lower() not in ours]
    return b"\r\n".join([*kept, b"Connection: close", b"", b""])


def _write_reply(
    writer: asyncio.StreamWriter,
    status: int,
    state: str,
    text: str,
) -> None:
    body = text.encode()
    head = (
        f"HTTP/1.1 {status} {state}\r\n{STATE}: {state}\r\nContent-Type: text/plain\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode() + body)


def _signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _print_line(text: str) -> None:
    print(f"fleetctl: {text}", flush=True)


async def _run_guard(order: Order, env: dict[str, str]) -> None:
    guard = Guard(order, env)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, guard.over.set)
    await guard.run()


def main() -> NoReturn:
    env = dict(os.environ)
    order = json.loads(env.pop(ORDER))
    env.update(order["env"])
    asyncio.run(_run_guard(order, env))
    sys.exit(0)


if __name__ == "__main__":
    main()
