"""One container of a function, seen from the emulator: a box in which function_runner.py answers
calls. Started and ended by function_pool.py, which decides which call goes where.
"""

from __future__ import annotations

import asyncio
import codecs
import json
import os
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from tests.emulators.boxes import Box, BoxError, BoxProcess

from .function_cluster import Cluster

RUNNER = Path(__file__).with_name("function_runner.py")
RUNNER_IN_BOX = "/__modal/function_runner.py"
PACKAGES_IN_BOX = "/__modal/pkg"


class Listener(Protocol):
    """What a container tells; each from the event loop, in the order in which it happened."""

    def began(self, container: Container, input_id: str) -> None: ...
    def answered(self, container: Container, head: dict[str, Any], body: bytes) -> None: ...
    def logged(self, container: Container, descriptor: int, text: str) -> None: ...
    def ended(self, container: Container) -> None: ...


class Container:
    """`state` is starting, idle, busy or ended; `reason` says why it ended. `rank` is its place in
    its cluster.
    """

    def __init__(
        self, task_id: str, function_id: str, gpu: str, cluster: Cluster, listener: Listener
    ) -> None:
        self.task_id, self.function_id, self.gpu = task_id, function_id, gpu
        self.cluster, self.rank = cluster, len(cluster.members)
        cluster.members.append(self)
        self.state = "starting"
        self.reason = ""
        self.input_id = ""  # what runs in it now
        self.inputs_taken = 0
        self.enqueued_at = self.idle_since = time.time()
        self.started_at = self.ended_at = 0.0
        self.failure: tuple[dict[str, Any], bytes] | None = None  # why the function did not load
        self.box: Box | None = None
        self.process: BoxProcess | None = None
        self.draining = False  # takes no more inputs
        self.deadline: asyncio.TimerHandle | None = None  # of the input that runs in it
        self._listener = listener
        self._writer: asyncio.StreamWriter | None = None
        self._logs: list[_LogPipe] = []
        self._ending: asyncio.Task[None] | None = None

    async def start(
        self, box: Box, *, definition: dict[str, Any], body: bytes, packages: Path
    ) -> None:
        """`definition` and `body` are what function_runner.load takes; `packages` is what the box
        has at PACKAGES_IN_BOX. Raises BoxError."""
        self.box = box
        await box.start()
        try:
            if self.reason:
                raise BoxError(3, self.reason)  # killed while it started
            places = (RUNNER_IN_BOX, PACKAGES_IN_BOX)
            if not box.isolated:
                places = (str(RUNNER), str(packages))
            reader = await self._spawn(box, places[0])
        except BoxError:
            await box.kill()
            raise
        self._send({**definition, "packages": places[1]}, body)
        self._ending = asyncio.create_task(self._listen(reader))

    async def _spawn(self, box: Box, runner: str) -> asyncio.StreamReader:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self._logs = [_LogPipe(1, self._log), _LogPipe(2, self._log)]
        try:
            self.process = await box.spawn(
                ["python", runner],
                stdin=theirs.fileno(),
                stdout=self._logs[0].write_end,
                stderr=self._logs[1].write_end,
            )
        except BoxError:
            ours.close()
            for pipe in self._logs:
                pipe.close()
            raise
        finally:
            theirs.close()
            for pipe in self._logs:
                pipe.close_write_end()
        reader, self._writer = await asyncio.open_connection(sock=ours)
        return reader

    def call(self, input_id: str, call_id: str, *, data_format: int, body: bytes) -> None:
        self.state, self.input_id = "busy", input_id
        self.inputs_taken += 1
        head = {"op": "call", "input_id": input_id, "call_id": call_id, "format": data_format}
        self._send(head, body)

    def cancel(self, input_id: str) -> None:
        self._send({"op": "cancel", "input_id": input_id})

    def stop(self, reason: str) -> None:
        """It ends when the call that runs in it has ended."""
        self.reason = self.reason or reason
        self.draining = True
        self._send({"op": "stop"})

    async def interrupt(self, reason: str, *, notice_s: float) -> None:
        """SIGINT to its main program, and its end notice_s later at the latest."""
        self.reason = self.reason or reason
        self.draining = True
        self._send({"op": "interrupt"})
        if self._ending is not None:
            await asyncio.wait([self._ending], timeout=notice_s)
        await self.kill(reason)

    async def kill(self, reason: str) -> None:
        self.reason = self.reason or reason
        if self.box is not None:
            await self.box.kill()
        if self._ending is not None:
            await self._ending

    def read_logs(self) -> None:
        """Takes in what was printed up to now, so that it belongs to the input that runs now."""
        for pipe in self._logs:
            pipe.read()

    def _cancel_deadline(self) -> None:
        if self.deadline is not None:
            self.deadline.cancel()

    def _log(self, descriptor: int, text: str) -> None:
        self._listener.logged(self, descriptor, text)

    def _send(self, head: dict[str, Any], body: bytes = b"") -> None:
        if self._writer is not None and not self._writer.is_closing():
            text = json.dumps(head).encode()
            self._writer.write(struct.pack(">II", len(text), len(body)) + text + body)

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        while (frame := await _read_frame(reader)) is not None:
            self._on_frame(*frame)
        assert self.process is not None and self.box is not None
        if self.box.alive:
            await self.process.wait()
        self.read_logs()
        for pipe in self._logs:
            pipe.close()
        if self._writer is not None:
            self._writer.close()
        await self.box.kill()
        self.state, self.ended_at = "ended", time.time()
        self._cancel_deadline()
        self._listener.ended(self)

    def _on_frame(self, head: dict[str, Any], body: bytes) -> None:
        self.read_logs()
        match head["op"]:
            case "ready":
                self.state, self.started_at, self.idle_since = "idle", time.time(), time.time()
                if self.draining:
                    self._send({"op": "stop"})
                self._listener.answered(self, head, body)
            case "began":
                self._listener.began(self, head["input_id"])
            case "failed":
                self.failure = (head, body)
                self.reason = "the function did not load"
            case "result":
                self.state, self.input_id, self.idle_since = "idle", "", time.time()
                self._cancel_deadline()
                self._listener.answered(self, head, body)


async def _read_frame(reader: asyncio.StreamReader) -> tuple[dict[str, Any], bytes] | None:
    """None at the end, also one in the middle of a frame: then the container has died."""
    try:
        head_length, body_length = struct.unpack(">II", await reader.readexactly(8))
        head = json.loads(await reader.readexactly(head_length))
        return head, await reader.readexactly(body_length)
    except (asyncio.IncompleteReadError, ConnectionResetError):
        return None


class _LogPipe:
    """Reads what a process prints, without waiting for it."""

    def __init__(self, descriptor: int, tell: Callable[[int, str], None]) -> None:
        self._descriptor, self._tell = descriptor, tell
        self._read_end, self.write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._open = True
        asyncio.get_running_loop().add_reader(self._read_end, self.read)

    def read(self) -> None:
        while self._open:
            try:
                data = os.read(self._read_end, 65536)
            except BlockingIOError:
                return
            if not data:
                self.close()
            elif text := self._decoder.decode(data):
                self._tell(self._descriptor, text)

    def close_write_end(self) -> None:
        os.close(self.write_end)

    def close(self) -> None:
        if self._open:
            self._open = False
            asyncio.get_running_loop().remove_reader(self._read_end)
            os.close(self._read_end)
