"""Port forwarding to a pod over websockets, as the official Python client asks for it.

Each port has two channels, one for data and one for errors; both begin with the port's number.
"""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress

from aiohttp import WSMsgType, web

from tests.emulators.kubernetes.api.call import Call
from tests.emulators.kubernetes.nodes.kubelet import Kubelet
from tests.emulators.kubernetes.nodes.pods import pod_of
from tests.emulators.kubernetes.nodes.streams.commands import opened, wants_websocket
from tests.emulators.kubernetes.nodes.streams.tunnel import TUNNEL, Tunnel, connected, refused
from tests.emulators.kubernetes.store.errors import ApiError

PROTOCOL = "v4.channel.k8s.io"
READ_BYTES = 32 * 1024


class Forwarding:
    def __init__(self, kubelet: Kubelet) -> None:
        self._kubelet = kubelet

    async def serve(self, request: web.BaseRequest, call: Call) -> web.StreamResponse:
        wants_websocket(request)
        pod = pod_of(self._kubelet, call)
        phase = pod.get("status", {}).get("phase")
        if phase != "Running":
            message = f"unable to forward port because pod is not running. Current status={phase}"
            raise ApiError(400, message)
        if TUNNEL in request.headers.get("Sec-WebSocket-Protocol", ""):
            socket = await opened(request, (TUNNEL,))
            await Tunnel(socket, call.name).run()
            return socket
        try:
            ports = [int(it) for one in request.query.getall("ports", []) for it in one.split(",")]
        except ValueError as error:
            raise ApiError(400, "port must be a number") from error
        if not ports:
            raise ApiError(400, 'query parameter "ports" is required')
        socket = await opened(request, (PROTOCOL,))
        await _Channels(socket, call.name, ports).run()
        return socket


class _Channels:
    def __init__(self, socket: web.WebSocketResponse, pod: str, ports: list[int]) -> None:
        self._socket, self._pod, self._ports = socket, pod, ports
        self._writers: dict[int, asyncio.StreamWriter] = {}
        self._tasks: list[asyncio.Future[None]] = []

    async def run(self) -> None:
        try:
            for number, port in enumerate(self._ports):
                for channel in (2 * number, 2 * number + 1):
                    await self._send(channel, struct.pack("<H", port))
                await self._open(number, port)
            async for message in self._socket:
                if message.type == WSMsgType.BINARY and message.data:
                    await self._take(message.data[0], message.data[1:])
        finally:
            for task in self._tasks:
                task.cancel()
            for writer in self._writers.values():
                writer.close()

    async def _open(self, number: int, port: int) -> None:
        try:
            reader, writer = await connected(port)
        except OSError as error:
            await self._send(2 * number + 1, refused(port, self._pod, error).encode())
            return
        self._writers[2 * number] = writer
        self._tasks.append(asyncio.ensure_future(self._pump(2 * number, reader)))

    async def _take(self, channel: int, data: bytes) -> None:
        writer = self._writers.get(channel)
        if writer is not None:
            with suppress(ConnectionError):
                writer.write(data)
                await writer.drain()

    async def _pump(self, channel: int, reader: asyncio.StreamReader) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(READ_BYTES):
                await self._send(channel, data)
        # One side is over: so is the forwarding of all, as the real one has it.
        await self._socket.close()

    async def _send(self, channel: int, data: bytes) -> None:
        await self._socket.send_bytes(bytes([channel]) + data)
