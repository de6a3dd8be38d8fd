"""Numbered calls: each is sent once however often a task repeats it, and its answer goes to every
request; a line carries those of many runs.

A call goes on when the connection to its task is lost; a client that leaves sends a cancel under
the number of the call.

Each frame, in both directions, is a head of JSON, a newline, and the body as it is. The head of a
request has `id`, `token`, `path` and `number`; that of a reply `id`, `status`, `usd` if it is
known, and `again_at_s` if a server asks to come back then. Replies come as they are there, in any
order. A head with `drop` gives a call up: its reply is that it broke off.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from aiohttp import ClientError, WSMsgType, web

from fleetctl.gateway.answer_log import USD
from fleetctl.gateway.asking.ask import answer_call
from fleetctl.gateway.asking.call import EndpointCall
from fleetctl.gateway.gateway_state import GatewayState
from fleetctl.gateway.numbered_calls import CallAnswer, NumberedCall
from fleetctl.gateway.rules.failures import NO_ANSWER, GatewayRefusal, retry_after_s

ASKED = "/asked/"  # and a number
Batched = Callable[[EndpointCall, str], Awaitable[CallAnswer]]
NUMBER = "X-Fleetctl-Number"
HAVE = "X-Fleetctl-Have"

HEAD_BYTES_MAX = 4096
_BROKEN = 1002  # protocol error, as RFC 6455 numbers it

# token, path, body, number -> the reply for the task, also when it is a refusal
Hear = Callable[[str, str, bytes, str], Awaitable[CallAnswer]]
Drop = Callable[[str, str], None]  # (token, number)


def have_of(request: web.Request) -> int:
    """Bytes of the answer that the task was given already."""
    text = request.headers.get(HAVE, "0")
    if text.isdecimal():
        return int(text)
    return 0


def join_call(
    call: EndpointCall,
    number: str,
    have: int,
    *,
    by: Batched | None = None,
) -> NumberedCall:
    """Returns the call of this number, which is begun if it never was. Raises GatewayRefusal if a
    part of an answer was delivered that is no longer kept: a second request would give another
    answer.

    by: sends the call in a batch, which keeps its answers itself.
    """
    numbered = call.state.numbered
    run = call.grant.run
    now_s = time.monotonic()
    retold = numbered.find(run, number, now_s)
    if retold is None:
        kept = (call.state.kept if by is None else call.state.answers).find(run, number)
        if kept is not None:
            retold = NumberedCall()
            retold.end(kept)
            return retold
        if have:
            raise GatewayRefusal(
                502, NO_ANSWER, f"endpoint {call.endpoint.name}: the answer broke off"
            )
        retold = numbered.begin(run, number)
        task = retold.task = asyncio.create_task(
            _keep_answer(call, number, retold)
            if by is None
            else _answer_in_batch(call, number, retold, by)
        )
        call.state.tasks.add(task)
        task.add_done_callback(partial(_finish_call, call, number, retold))
    return retold


async def send_answer(
    request: web.Request,
    retold: NumberedCall,
    have: int,
) -> web.StreamResponse:
    await retold.begun()
    if retold.head is None:
        return _cut_connection(request, web.Response(status=502))
    status, headers = retold.head
    if not retold.streams:
        body = b"".join([data async for data in retold.pieces(have)])
        return web.Response(
            status=status,
            headers=headers,
            body=body,
        )
    response = web.StreamResponse(status=status, headers=headers)
    await response.prepare(request)
    async for data in retold.pieces(have):
        await response.write(data)
    if retold.broken:
        return _cut_connection(request, response)
    await response.write_eof()
    return response


def cancel_call(
    state: GatewayState,
    run: str,
    number: str,
) -> None:
    """Cancels the call: no client waits for it any more."""
    retold = state.numbered.find(run, number, time.monotonic())
    if retold is not None and retold.task is not None:
        retold.task.cancel()


def answer_of(refusal: GatewayRefusal) -> CallAnswer:
    """Returns the refusal as an answer for the task. The openai client repeats a refused call
    unless a header forbids it.
    """
    headers = {"Content-Type": "application/json; charset=utf-8"}
    if refusal.status == 429:
        headers["x-should-retry"] = "false"
    error = {"message": str(refusal), "type": "fleetctl", "code": refusal.code}
    return CallAnswer(refusal.status, headers, json.dumps({"error": error}).encode())


async def _keep_answer(
    call: EndpointCall,
    number: str,
    retold: NumberedCall,
) -> None:
    """Stores a whole answer on disk before its end is delivered, and then only there. An error is
    not stored: a waiting client gets it, and a client that repeats the call sends it again.
    """
    state = call.state
    run = call.grant.run
    try:
        answer = await answer_call(call, retold.begin, retold.piece)
    except GatewayRefusal as refusal:
        if retold.head is None:
            retold.end(answer_of(refusal))
        else:
            retold.break_off()
            state.numbered.broke(run, number, time.monotonic())
        return
    if answer.status < 400:
        # An answer is given out, too, where there is no room on the disk to keep it.
        with suppress(sqlite3.Error):
            await state.kept.put(run, number, replace(answer, body=answer.body or retold.body))
    retold.end(answer)


async def _answer_in_batch(
    call: EndpointCall,
    number: str,
    retold: NumberedCall,
    by: Batched,
) -> None:
    try:
        answer = await by(call, number)
    except GatewayRefusal as refusal:
        answer = answer_of(refusal)
    retold.end(answer)


def _finish_call(
    call: EndpointCall,
    number: str,
    retold: NumberedCall,
    task: asyncio.Task[None],
) -> None:
    """Finishes a call, however it ended: a task that is cancelled before its first step runs no
    code.
    """
    call.state.tasks.discard(task)
    call.state.numbered.end(call.grant.run, number)
    if not retold.done:
        retold.break_off()


def _cut_connection(request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    """Cuts the connection: only a cut shows a client that an answer is not whole."""
    if request.transport is not None:
        request.transport.close()
    return response


async def serve_websocket(
    request: web.Request,
    hear: Hear,
    drop: Drop,
    body_bytes_max: int,
) -> web.WebSocketResponse:
    """Serves until the other side leaves. Its calls go on, and their answers are kept by number."""
    line = web.WebSocketResponse(max_msg_size=body_bytes_max + HEAD_BYTES_MAX, compress=False)
    await line.prepare(request)
    under_way: set[asyncio.Task[None]] = set()
    try:
        async for message in line:
            frame = message.data
            if message.type is not WSMsgType.BINARY or (head := _parse_head(frame)) is None:
                await line.close(code=_BROKEN)
                break
            if head.get("drop"):
                # In its turn: the call that it gives up may have come in the moment before.
                asyncio.get_running_loop().call_soon(drop, head["token"], str(head["number"]))
                continue
            body = frame[frame.index(b"\n") + 1 :]
            task = asyncio.create_task(_answer_frame(line, head, body, hear))
            del frame, body, message
            under_way.add(task)
            task.add_done_callback(under_way.discard)
    finally:
        for task in under_way:
            task.cancel()
    return line


async def _answer_frame(
    line: web.WebSocketResponse,
    head: Any,
    body: bytes,
    hear: Hear,
) -> None:
    heard = hear(head["token"], head["path"], body, str(head["number"]))
    del body  # thousands may wait for hours
    answer = await heard
    reply: dict[str, object] = {"id": head["id"], "status": answer.status}
    if USD in answer.headers:
        reply["usd"] = float(answer.headers[USD])
    if wait_s := retry_after_s(answer.headers, now_s := time.time()):
        reply["again_at_s"] = now_s + wait_s
    with suppress(ClientError, ConnectionError):  # it has left: the answer is kept for its return
        await line.send_bytes(json.dumps(reply).encode() + b"\n" + answer.body)


def _parse_head(frame: bytes) -> Any:
    """Parses the head of a frame; None for a frame that is not of our client."""
    try:
        head = json.loads(frame[: frame.index(b"\n", 0, HEAD_BYTES_MAX)])
    except ValueError:
        return None
    known = isinstance(head, dict) and {"id", "token", "path", "number"} <= head.keys()
    if known and all(isinstance(head[it], str) for it in ("token", "path")):
        return head
    return None
