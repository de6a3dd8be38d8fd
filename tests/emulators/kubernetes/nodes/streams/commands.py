"""exec and attach over websockets: v4 and v5.channel.k8s.io."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from aiohttp import WSMsgType, web

from tests.emulators.boxes import BoxError, BoxProcess
from tests.emulators.kubernetes.api.call import TRUE, Call
from tests.emulators.kubernetes.nodes.containers import Container
from tests.emulators.kubernetes.nodes.kubelet import Kubelet
from tests.emulators.kubernetes.nodes.pods import container_named, pod_of
from tests.emulators.kubernetes.store.errors import ApiError

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
STDIN, STDOUT, STDERR, STATUS, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
READ_BYTES = 32 * 1024
Status = dict[str, Any]


def wants_websocket(request: web.BaseRequest) -> None:
    """Raises ApiError 400 for what cannot be upgraded to one, such as SPDY by itself."""
    if request.headers.get("Upgrade", "").lower() != "websocket":
        raise ApiError(400, "Upgrade request required")


async def opened(request: web.BaseRequest, protocols: tuple[str, ...]) -> web.WebSocketResponse:
    socket = web.WebSocketResponse(protocols=protocols, compress=False, max_msg_size=0)
    await socket.prepare(request)
    return socket


class Executions:
    """Serves both; a process that somebody started by exec ends with its connection."""

    def __init__(self, kubelet: Kubelet) -> None:
        self._kubelet = kubelet

    async def exec(self, request: web.BaseRequest, call: Call) -> web.StreamResponse:
        wants_websocket(request)
        container = self._running(call)
        argv = request.query.getall("command", [])
        if not argv:
            raise ApiError(400, "you must specify at least 1 command for the container")
        socket = await opened(request, PROTOCOLS)
        await _Execution(socket, container, request.query).run(argv)
        return socket

    async def attach(self, request: web.BaseRequest, call: Call) -> web.StreamResponse:
        wants_websocket(request)
        container = self._running(call)
        socket = await opened(request, PROTOCOLS)
        told: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()
        container.log.listeners.add(told)
        reading = asyncio.ensure_future(self._input(socket, container))
        over = asyncio.ensure_future(container.wait())
        try:
            while not (over.done() and told.empty()) and not reading.done():
                news = asyncio.ensure_future(told.get())
                await asyncio.wait((news, over, reading), return_when=asyncio.FIRST_COMPLETED)
                if news.done():
                    channel, data = news.result()
                    await socket.send_bytes(bytes([channel]) + data)
                else:
                    news.cancel()
            if over.done():
                # To be attached went well, whatever the container's code is.
                await socket.send_bytes(bytes([STATUS]) + _packed(status_of(0)))
        finally:
            container.log.listeners.discard(told)
            reading.cancel(), over.cancel()
        await socket.close()
        return socket

    async def _input(self, socket: web.WebSocketResponse, container: Container) -> None:
        async for message in socket:
            if message.type == WSMsgType.BINARY and message.data[:1] == bytes([STDIN]):
                container.write(message.data[1:])
            elif message.data == bytes([CLOSE, STDIN]):
                container.end_input()

    def _running(self, call: Call) -> Container:
        pod = pod_of(self._kubelet, call)
        name = container_named(pod, call.query.get("container", ""), call.name)
        runner = self._kubelet.runner(call.namespace, call.name)
        if pod["spec"].get("nodeName", "") in self._kubelet.lost_nodes:
            raise ApiError(500, "Internal error occurred: dial tcp: i/o timeout")
        if pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            phase = pod["status"]["phase"]
            message = f"cannot exec into a container in a completed pod; current phase is {phase}"
            raise ApiError(400, message)
        container = runner.containers.get(name) if runner else None
        if container is None or not container.running:
            raise ApiError(500, f'Internal error occurred: container not found ("{name}")')
        return container


class _Execution:
    def __init__(self, socket: web.WebSocketResponse, container: Container, query: Any) -> None:
        self._socket, self._container = socket, container
        self._wants = {it: query.get(it) in TRUE for it in ("stdin", "stdout", "stderr", "tty")}
        self._input = -1

    async def run(self, argv: list[str]) -> None:
        box = self._container.box
        assert box is not None
        env = self._container.environment
        cwd = self._container.spec.get("workingDir") or "/"
        pipes = [os.pipe() for _ in range(3)] if not self._wants["tty"] else []
        try:
            if pipes:
                process = await box.spawn(
                    argv,
                    env=env,
                    cwd=cwd,
                    stdin=pipes[0][0] if self._wants["stdin"] else None,
                    stdout=pipes[1][1],
                    stderr=pipes[2][1],
                )
            else:
                process = await box.spawn(argv, env={"TERM": "xterm", **env}, cwd=cwd, pty=True)
        except BoxError as error:
            for end in (it for pair in pipes for it in pair):
                os.close(end)
            await self._send(STATUS, _packed(_not_run(argv[0], error)))
            await self._socket.close()
            return
        await self._carry(process, pipes)

    async def _carry(self, process: BoxProcess, pipes: list[tuple[int, int]]) -> None:
        if pipes:
            for end in (pipes[0][0], pipes[1][1], pipes[2][1]):
                os.close(end)
            self._input = pipes[0][1]
            outputs = [
                asyncio.ensure_future(self._output(pipes[1][0], STDOUT)),
                asyncio.ensure_future(self._output(pipes[2][0], STDERR)),
            ]
        else:
            assert process.terminal is not None
            self._input = process.terminal
            outputs = [asyncio.ensure_future(self._output(os.dup(process.terminal), STDOUT))]
        reading = asyncio.ensure_future(self._read(process))
        ending = asyncio.ensure_future(process.wait())
        try:
            await asyncio.wait((reading, ending), return_when=asyncio.FIRST_COMPLETED)
            if ending.done():
                # Children may hold the pipes; what the command itself said is there at once.
                await asyncio.wait(outputs, timeout=0.5)
                code = ending.result()
                await self._send(STATUS, _packed(status_of(128 - code if code < 0 else code)))
                await self._socket.close()
            else:
                process.kill()
        finally:
            for task in (reading, ending, *outputs):
                task.cancel()
            self._end_input()

    async def _output(self, descriptor: int, channel: int) -> None:
        async with _reader(descriptor) as reader:
            while True:
                try:
                    data = await reader.read(READ_BYTES)
                except OSError:  # a terminal whose last user is gone
                    return
                if not data:
                    return
                await self._send(channel, data)

    async def _read(self, process: BoxProcess) -> None:
        """Until the client goes."""
        loop = asyncio.get_running_loop()
        async for message in self._socket:
            if message.type == WSMsgType.TEXT:
                data = message.data.encode()
            elif message.type == WSMsgType.BINARY:
                data = message.data
            else:
                continue
            channel, rest = data[0], data[1:]
            if channel == STDIN and rest and self._input >= 0:
                with suppress(OSError):
                    await loop.run_in_executor(None, _write_all, self._input, rest)
            elif channel == RESIZE and process.terminal is not None:
                size = json.loads(rest)
                process.resize(size["Height"], size["Width"])
            elif channel == CLOSE and rest == bytes([STDIN]) and process.terminal is None:
                self._end_input()

    def _end_input(self) -> None:
        if self._input >= 0:
            os.close(self._input)
            self._input = -1

    async def _send(self, channel: int, data: bytes) -> None:
        with suppress(ConnectionError):
            await self._socket.send_bytes(bytes([channel]) + data)


@asynccontextmanager
async def _reader(descriptor: int) -> AsyncIterator[asyncio.StreamReader]:
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await loop.connect_read_pipe(lambda: protocol, os.fdopen(descriptor, "rb"))
    try:
        yield reader
    finally:
        transport.close()


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _packed(status: Status) -> bytes:
    return json.dumps(status).encode()


def status_of(code: int) -> Status:
    """What a command's end is told as."""
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


def _not_run(program: str, error: BoxError) -> Status:
    why = f'exec: "{program}": {error.strerror}'
    if error.errno == 2:
        why = f'exec: "{program}": executable file not found in $PATH'
    message = (
        "Internal error occurred: error executing command in container: failed to exec in"
        f" container: OCI runtime exec failed: exec failed: unable to start container process:"
        f" {why}: unknown"
    )
    return {
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": "InternalError",
        "details": {"causes": [{"message": message}]},
        "code": 500,
    }
