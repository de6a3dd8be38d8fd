"""Logs on the control plane: V1 output as it comes, and the search over all output of an app."""

from __future__ import annotations

import codecs
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp
from modal_proto import api_pb2

from .sandboxes import Sandbox
from .state import World
from .streams import Output

STDOUT, STDERR = api_pb2.FILE_DESCRIPTOR_STDOUT, api_pb2.FILE_DESCRIPTOR_STDERR
FETCH_MAX = 1000
TAIL_WAIT_S = 55.0


@dataclass(frozen=True, slots=True)
class LogLine:
    """One piece of output and all that it may be asked for by."""

    at_s: float
    text: str
    descriptor: int
    app_id: str = ""
    task_id: str = ""
    sandbox_id: str = ""
    function_id: str = ""
    function_call_id: str = ""
    input_id: str = ""


class Logs:
    world: World

    async def SandboxGetLogs(
        self, request: api_pb2.SandboxGetLogsRequest
    ) -> AsyncIterator[api_pb2.TaskLogsBatch]:
        """Text from the entry after `last_entry_id`, whose number is a byte offset. Ends with an
        eof after the last output of the sandbox, or without one at the timeout.
        """
        sandbox = self.world.sandboxes.get(request.sandbox_id)
        offset = int((request.last_entry_id or "0-0").partition("-")[0])
        deadline = time.monotonic() + (request.timeout or TAIL_WAIT_S)
        await sandbox.running.wait()
        output = _output(sandbox, request.file_descriptor)
        while True:
            while output is not None and offset < output.end:
                text, offset = _text(output, offset)
                item = api_pb2.TaskLogs(
                    data=text, file_descriptor=request.file_descriptor, timestamp=time.time()
                )
                yield api_pb2.TaskLogsBatch(
                    task_id=sandbox.task_id, items=[item], entry_id=f"{offset}-0"
                )
            if output is None or output.closed:
                yield api_pb2.TaskLogsBatch(entry_id=f"{offset}-0", eof=True)
                return
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return
            await output.news(left_s)

    async def AppFetchLogs(
        self, request: api_pb2.AppFetchLogsRequest
    ) -> api_pb2.AppFetchLogsResponse:
        """The newest up to the limit, in the order of time."""
        lines = list(self._found(request))[-(request.limit or FETCH_MAX) :]
        batches = [
            api_pb2.TaskLogsBatch(
                task_id=line.task_id,
                function_id=line.function_id,
                sandbox_id=line.sandbox_id,
                input_id=line.input_id,
                items=[_item(line)],
            )
            for line in lines
        ]
        return api_pb2.AppFetchLogsResponse(batches=batches)

    async def AppCountLogs(
        self, request: api_pb2.AppCountLogsRequest
    ) -> api_pb2.AppCountLogsResponse:
        width = request.bucket_secs or 60
        counts: dict[int, dict[int, int]] = {}
        for line in self._found(request):
            bucket = counts.setdefault(int(line.at_s) // width * width, {STDOUT: 0, STDERR: 0})
            bucket[line.descriptor] += 1
        buckets = [
            api_pb2.AppCountLogsResponse.LogBucket(
                bucket_start_at=Timestamp(seconds=start),
                stdout_logs=bucket[STDOUT],
                stderr_logs=bucket[STDERR],
            )
            for start, bucket in sorted(counts.items())
        ]
        return api_pb2.AppCountLogsResponse(app_id=request.app_id, buckets=buckets)

    def _found(self, request: Any) -> Iterator[LogLine]:
        since_s, until_s = _seconds(request.since, 0.0), _seconds(request.until, float("inf"))
        names = ("app_id", "task_id", "sandbox_id", "function_id", "function_call_id")
        asked = {name: getattr(request, name) for name in names if getattr(request, name)}
        for line in sorted(self._lines(asked), key=lambda one: one.at_s):
            if (
                since_s <= line.at_s <= until_s
                and request.source in (api_pb2.FILE_DESCRIPTOR_UNSPECIFIED, line.descriptor)
                and all(getattr(line, name) == value for name, value in asked.items())
                and request.search_text in line.text
            ):
                yield line

    def _lines(self, asked: dict[str, str]) -> Iterator[LogLine]:
        yield from self.world.function_logs
        wanted = asked.get("sandbox_id")
        for sandbox in [self.world.sandboxes.get(wanted)] if wanted else self._all(asked):
            yield from _sandbox_lines(sandbox)

    def _all(self, asked: dict[str, str]) -> list[Sandbox]:
        app_id = asked.get("app_id", "")
        everything = self.world.sandboxes.by_id.values()
        return [one for one in everything if app_id in ("", one.app_id)]


def _sandbox_lines(sandbox: Sandbox) -> Iterator[LogLine]:
    """The entrypoint's output by the pieces in which it came."""
    for descriptor in (STDOUT, STDERR):
        output = _output(sandbox, descriptor)
        begin = output.start if output else 0
        for at_s, end in output.marks if output else ():
            if output is None or end <= begin:
                continue
            text = output.since(begin)[: end - begin].decode(errors="replace")
            begin = end
            for line in text.splitlines(keepends=True):
                yield LogLine(
                    at_s, line, descriptor, sandbox.app_id, sandbox.task_id, sandbox.sandbox_id
                )


def _output(sandbox: Sandbox, descriptor: int) -> Output | None:
    if sandbox.entry is None:
        return None
    return sandbox.entry.stdout if descriptor == STDOUT else sandbox.entry.stderr


def _text(output: Output, offset: int) -> tuple[str, int]:
    """Text and the offset after it. A letter of several bytes is never cut, unless it is all there
    is to say.
    """
    offset = max(offset, output.start)
    data = output.since(offset)
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    text = decoder.decode(data)
    pending = len(decoder.getstate()[0])
    if not text:
        return data.decode(errors="replace"), offset + len(data)
    return text, offset + len(data) - pending


def _item(line: LogLine) -> api_pb2.TaskLogs:
    return api_pb2.TaskLogs(
        data=line.text,
        timestamp=line.at_s,
        timestamp_ns=int(line.at_s * 1e9),
        file_descriptor=line.descriptor,
        function_call_id=line.function_call_id,
        input_id=line.input_id,
    )


def _seconds(stamp: Timestamp, unset: float) -> float:
    return stamp.seconds + stamp.nanos / 1e9 if stamp.seconds else unset
