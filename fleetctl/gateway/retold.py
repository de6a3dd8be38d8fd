"""Numbered calls: asked once however often they are told, and told to whoever asks for them. The
asking goes on when the line to a task is lost; a client that leaves says so under its number.
"""

import asyncio
import json
import time

from aiohttp import web

from fleetctl.gateway.call import Call, Refusal, ask
from fleetctl.gateway.numbered import Answer, Retold
from fleetctl.gateway.state import State

ASKED = "/asked/"  # and a number
NUMBER, HAVE = "X-Fleetctl-Number", "X-Fleetctl-Have"


def have_of(request: web.Request) -> int:
    """Bytes of the answer that the task was given already."""
    text = request.headers.get(HAVE, "0")
    return int(text) if text.isdecimal() else 0


def asked(call: Call, number: str, have: int) -> Retold:
    """The call of that number, which is begun if it never was. Raises Refusal where a part of an
    answer is there that is no longer kept: asked anew it would be another.
    """
    kept, run, now_s = call.state.numbered, call.grant.run, time.monotonic()
    retold = kept.find(run, number, now_s)
    if retold is None:
        if have:
            raise Refusal(502, f"endpoint {call.endpoint.name}: the answer broke off")
        retold = kept.begin(run, number, now_s)
        task = retold.task = asyncio.create_task(_keep(call, number, retold))
        call.state.tasks.add(task)
        task.add_done_callback(call.state.tasks.discard)
    return retold


async def tell(request: web.Request, retold: Retold, have: int) -> web.StreamResponse:
    await retold.begun()
    if retold.head is None:
        return _cut(request, web.Response(status=502))
    status, headers = retold.head
    if not retold.streams:
        body = b"".join([data async for data in retold.pieces(have)])
        return web.Response(status=status, headers=headers, body=body)
    response = web.StreamResponse(status=status, headers=headers)
    await response.prepare(request)
    async for data in retold.pieces(have):
        await response.write(data)
    if retold.broken:
        return _cut(request, response)
    await response.write_eof()
    return response


def cancel(state: State, run: str, number: str) -> None:
    """Nobody waits for that call any more."""
    retold = state.numbered.find(run, number, time.monotonic())
    if retold is not None and retold.task is not None:
        retold.task.cancel()


def answer_of(refusal: Refusal) -> Answer:
    """What a task hears of it. The openai client asks a refused call again unless it is told."""
    headers = {"Content-Type": "application/json; charset=utf-8"}
    if refusal.status == 429:
        headers["x-should-retry"] = "false"
    error = {"message": str(refusal), "type": "fleetctl", "code": refusal.status}
    return Answer(refusal.status, headers, json.dumps({"error": error}).encode())


async def _keep(call: Call, number: str, retold: Retold) -> None:
    try:
        retold.end(await ask(call, retold.begin, retold.piece))
    except Refusal as refusal:
        if retold.head is not None:
            retold.break_off()
            return
        retold.end(answer_of(refusal))
    finally:
        if not retold.done:
            retold.break_off()
            call.state.numbered.forget(call.grant.run, number)
    if retold.head is not None and retold.head[0] >= 400:
        # Who waits for it hears it; who asks again asks anew, since nothing was answered.
        call.state.numbered.forget(call.grant.run, number)


def _cut(request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    """A cut is all that tells a client that an answer is not whole."""
    if request.transport is not None:
        request.transport.close()
    return response
