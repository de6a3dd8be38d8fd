"""Numbered calls: asked once however often they are told, and told to whoever asks for them. The
asking goes on when the line to a task is lost; a client that leaves says so under its number.
"""

import asyncio
import json
import sqlite3
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from aiohttp import web

from fleetctl.gateway.asking.ask import ask
from fleetctl.gateway.asking.call import Call
from fleetctl.gateway.numbered import Answer, Retold
from fleetctl.gateway.rules.refusal import NO_ANSWER, Refusal
from fleetctl.gateway.state import State

ASKED = "/asked/"  # and a number
Batched = Callable[[Call, str], Awaitable[Answer]]
NUMBER, HAVE = "X-Fleetctl-Number", "X-Fleetctl-Have"


def have_of(request: web.Request) -> int:
    """Bytes of the answer that the task was given already."""
    text = request.headers.get(HAVE, "0")
    return int(text) if text.isdecimal() else 0


def asked(call: Call, number: str, have: int, *, by: Batched | None = None) -> Retold:
    """The call of that number, which is begun if it never was. Raises Refusal where a part of an
    answer is there that is no longer kept: asked anew it would be another. by: asks it in a batch,
    which keeps its answers itself.
    """
    numbered, run, now_s = call.state.numbered, call.grant.run, time.monotonic()
    retold = numbered.find(run, number, now_s)
    if retold is None:
        kept = (call.state.kept if by is None else call.state.answers).find(run, number)
        if kept is not None:
            retold = Retold()
            retold.end(kept)
            return retold
        if have:
            raise Refusal(502, NO_ANSWER, f"endpoint {call.endpoint.name}: the answer broke off")
        retold = numbered.begin(run, number)
        task = retold.task = asyncio.create_task(
            _keep(call, number, retold) if by is None else _batched(call, number, retold, by)
        )
        call.state.tasks.add(task)
        task.add_done_callback(partial(_ended, call, number, retold))
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
    error = {"message": str(refusal), "type": "fleetctl", "code": refusal.code}
    return Answer(refusal.status, headers, json.dumps({"error": error}).encode())


async def _keep(call: Call, number: str, retold: Retold) -> None:
    """A whole answer is on disk before the last of it is given out, and then only there. An error
    is kept nowhere: who waits for it hears it, and who asks again asks anew.
    """
    state, run = call.state, call.grant.run
    try:
        answer = await ask(call, retold.begin, retold.piece)
    except Refusal as refusal:
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


async def _batched(call: Call, number: str, retold: Retold, by: Batched) -> None:
    try:
        answer = await by(call, number)
    except Refusal as refusal:
        answer = answer_of(refusal)
    retold.end(answer)


def _ended(call: Call, number: str, retold: Retold, task: asyncio.Task[None]) -> None:
    """However it ended: one that is cancelled before its first step does nothing itself."""
    call.state.tasks.discard(task)
    call.state.numbered.end(call.grant.run, number)
    if not retold.done:
        retold.break_off()


def _cut(request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    """A cut is all that tells a client that an answer is not whole."""
    if request.transport is not None:
        request.transport.close()
    return response
