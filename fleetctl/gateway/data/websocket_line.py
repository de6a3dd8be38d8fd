"""A line that carries numbered calls of many runs, for clients with a thousand calls a second: a
frame a call costs both sides a fifth of an HTTP exchange.

Each frame, in both directions, is a head of JSON, a newline, and the body as it is. The head of a
request has `id`, `token`, `path` and `number`; that of a reply `id`, `status`, `usd` if it is
known, and `again_at_s` if a server asks to come back then. Replies come as they are there, in any
order. A head with `drop` gives a call up: its reply is that it broke off.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from aiohttp import ClientError, WSMsgType, web

from fleetctl.gateway.keeping.answer_log import USD
from fleetctl.gateway.numbered_calls import CallAnswer
from fleetctl.gateway.rules.retry_rule import retry_after_s

HEAD_BYTES_MAX = 4096
_BROKEN = 1002  # protocol error, as RFC 6455 numbers it

# token, path, body, number -> the reply for the task, also when it is a refusal
Hear = Callable[[str, str, bytes, str], Awaitable[CallAnswer]]
Drop = Callable[[str, str], None]  # (token, number)


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
