"""Implements the Sandboxes protocol of providers/remote for calls of functions: the call of a run
is its sandbox, and returns the frames of the run.

Made by function_runs.py. A running call costs two requests in every wait: one for its end, and one
for its output so far.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.common.errors import Unavailable
from fleetctl.providers.modal.connection.modal_connection import ModalConnection
from fleetctl.providers.modal.connection.modal_errors import (
    not_found_error,
    retryable_call,
    sdk_errors,
)
from fleetctl.providers.modal.functions.call_records import CallHandle, CallNodes, parse_handle
from fleetctl.providers.modal.functions.latches import VOID, Latches
from fleetctl.providers.remote.runs.follower import SandboxOver
from fleetctl.providers.remote.sandboxes.sandbox_protocol import (
    Cause,
    Fate,
    RunWork,
    Sandboxes,
    StreamOffsets,
)

if TYPE_CHECKING:
    from fleetctl.providers.modal.functions.plain_pickle import CallOutput

WAIT_S_MAX = 45.0  # a follower takes a minute of silence for the end of its stream
WAITING_MAX = 1000  # requests that wait at Modal at once; calls beyond take turns
LOOK_AGAIN_S = 10.0  # between two turns of a call that may not wait at Modal
CALL_S = 30.0
CONFIRM_S = 20.0  # for a cancelled call to be over
ENDED_KEPT_MAX = 20_000
ALIVE = b'{"e":"alive"}\n'
EOF = b'{"e":"eof"}\n'
NODE_LOOK_S = 5.0  # between two looks at a node's output
KILLED = 137  # 128 + SIGKILL: left by a container's memory limit


class FunctionCalls:
    """The calls of one account, as sandboxes. wait_s: how long Modal may hold a request open."""

    def __init__(
        self,
        connection: ModalConnection,
        latches: Latches,
        *,
        wait_s: float,
        nodes: CallNodes,
    ) -> None:
        self._connection = connection
        self._nodes = nodes
        self._wait_s = min(wait_s, WAIT_S_MAX)
        self._node_look_s = min(wait_s, NODE_LOOK_S)
        self._latches = latches
        self._waiting = asyncio.Semaphore(WAITING_MAX)
        # handles of calls whose last frame was sent
        self._over: OrderedDict[str, None] = OrderedDict()
        self._ended_by_us: set[str] = set()

    # -- the Sandboxes protocol --------------------------------------------------------------------

    async def stream(
        self,
        handle: str,
        run: str,
        work: RunWork | None,  # the call has its order since it was spawned
        at: StreamOffsets,
    ) -> AsyncGenerator[bytes, None]:
        """Yields the call's frames up to now, and at last the frames that it returned."""
        one = _call_handle(handle)
        if one.sort == "node":
            async for frames in self._stream_node(one, at.journal):
                yield frames
            return
        call = one.id if one.called else await self._latches.holder(one.uid, run)
        if not one.called and call in ("", VOID):
            yield b'{"e":"unbegun"}\n'
            return
        journal_at = at.journal
        while True:
            while (output := await self._wait_for_output(call)) is None:
                whole = await self._latches.said(one.uid, run)
                await self._nodes.follow_nodes(one, whole)
                journal, journal_at = _unknown_frames(whole, journal_at)
                yield journal + ALIVE
            sent = _output_frames(output)
            winner = _winning_call(sent) if sent is not None else ""
            if not winner:
                break
            call = winner  # another call of the same run was first
        instead = _not_begun_reason(sent.partition(b"\n")[0]) if sent is not None else None
        if sent is None or instead is not None:
            # The frames that came stay, and the missing end follows them.
            reason, message = instead or _explain_end(output, ours=call in self._ended_by_us)
            sent = _ending_frames(str(replace(one, sort="fc", id=call)), output, reason, message)
            sent = sent if journal_at == 0 else sent.partition(b"\n")[2]
        else:
            await self._nodes.follow_nodes(one, sent)
            sent, _ = _unknown_frames(sent, journal_at)
        await self._nodes.all_over(one.run)
        self._note_over(handle)
        yield sent

    async def _stream_node(self, one: CallHandle, journal_at: int) -> AsyncGenerator[bytes, None]:
        """Yields the output of a node other than the first. All of it is stored before the end of
        its run is.
        """
        while True:
            over = await self._nodes.is_over(one.run, self._node_look_s)
            whole = await self._latches.said(one.uid, one.files)
            journal, journal_at = _unknown_frames(whole, journal_at)
            if over or whole.endswith(EOF):
                yield journal.removesuffix(EOF) + EOF
                return
            yield journal + ALIVE

    async def fate(self, handle: str) -> Fate | None:
        """Returns a fate for a call that was stopped before it began or that Modal has forgotten,
        else None: the end of a call comes in its stream.
        """
        one = _call_handle(handle)
        if one.sort == "node":
            return None
        if not one.called:
            holder = await self._latches.holder(one.uid, one.run)
            if holder == VOID:
                return Fate(Cause.STOPPED)
            return None
        try:
            await self._poll(one.id, 0.0)
        except SandboxOver:
            return Fate(Cause.UNKNOWN)
        return None

    async def end(self, handle: str) -> None:
        one = _call_handle(handle)
        if handle in self._over:
            return
        if one.sort == "node":
            await self._latches.forget_said(one.uid, one.files)
            self._nodes.ended(one)
            return
        # First, so that no other call of the run begins, not even one that was just sent.
        holder = await self._latches.void(one.uid, one.run)
        for call in {holder, one.id if one.called else ""} - {""}:
            await self._cancel(call)
        await self._nodes.all_over(one.run)

    async def ask_stop(
        self,
        handle: str,
        run: str,
        grace_s: float,
    ) -> None:
        """Requests a begun run to end within its grace; cancels the call of one that waits."""
        one = _call_handle(handle)
        if await self._latches.void(one.uid, run):
            await self._latches.ask_stop(one.uid, run, grace_s)
        elif one.called:
            await self._cancel(one.id)

    async def find(self, run: str) -> str | None:
        """Returns None: no object at Modal has the run's name; records and latches are read before
        this.
        """
        del run
        return None

    # -- helpers -----------------------------------------------------------------------------------

    async def _wait_for_output(self, call: str) -> CallOutput | None:
        """Waits at Modal for the output; beyond WAITING_MAX calls, polls now and then instead."""
        if self._waiting.locked():
            output = await self._poll(call, 0.0)
            if output is None:
                await asyncio.sleep(LOOK_AGAIN_S)
            return output
        async with self._waiting:
            return await self._poll(call, self._wait_s)

    async def _poll(self, call: str, wait_s: float) -> CallOutput | None:
        """Returns the output, or None after wait_s. Raises SandboxOver for a call that Modal has
        forgotten, and ConnectionError.
        """
        client = await self._connection.client()
        from fleetctl.providers.modal.functions import plain_pickle

        try:
            async with asyncio.timeout(wait_s + CALL_S):
                polled = await plain_pickle.poll_output.aio(client, call, wait_s)
        except not_found_error() as error:
            raise SandboxOver(call) from error
        except sdk_errors() as error:
            raise ConnectionError(f"call {call} cannot be looked at") from error
        if polled.expired:
            raise SandboxOver(call)
        output: CallOutput | None = polled.output
        return output

    async def _cancel(self, call: str) -> None:
        """Cancels the call; returns once it is over, and its container too, so that no process goes
        on.
        """
        client = await self._connection.client()
        import modal

        self._ended_by_us.add(call)
        try:
            found = modal.FunctionCall.from_id(call, client=client)
            async with retryable_call(f"call `{call}` cannot be cancelled", deadline_s=CALL_S):
                await found.cancel.aio(terminate_containers=True)
            if await self._poll(call, CONFIRM_S) is None:
                raise Unavailable(f"call `{call}` has not ended yet", retry_after_s=1.0)
        except SandboxOver:
            return
        except ConnectionError as error:
            raise Unavailable(f"call `{call}` cannot be looked at", retry_after_s=1.0) from error
        except not_found_error():
            return  # Modal knows it no more

    def _note_over(self, handle: str) -> None:
        self._over[handle] = None
        while len(self._over) > ENDED_KEPT_MAX:
            self._over.popitem(last=False)


_OF_THE_STREAM = tuple(
    b'{"e":"%s"' % word for word in (b"outputs", b"log", b"eof", b"lost", b"unbegun")
)
# Lines that the body returns in place of frames when it did not run the work.
_INSTEAD = {
    b'{"e":"void"}': (Cause.STOPPED.value, "it was stopped before it began"),
    b'{"e":"preempted"}': (
        Cause.PREEMPTED.value,
        "Modal took the container's machine away while it ran",
    ),
}


_UNFIT = b'{"e":"unfit",'
_WHY_UNFIT = {
    "LatchFailed": "the container cannot ask whether the run may begin",
    "NodesNotReady": "not all nodes were ready to begin",
    "VolumeNotReloaded": "the container cannot see what others wrote to its volumes",
}


def _not_begun_reason(line: bytes) -> tuple[str, str] | None:
    """Returns (reason, message) of a call whose first line reports that it began no work, else
    None.
    """
    if line.startswith(_UNFIT):
        document = json.loads(line)
        reason = str(document["reason"])[:64]
        message = str(document["message"])[:400]
        return reason, f"{_WHY_UNFIT.get(reason, 'the container is unfit')}: {message}"
    return _INSTEAD.get(line)


def _call_handle(text: str) -> CallHandle:
    found = parse_handle(text)
    assert found is not None, f"`{text}` is no handle of a call"
    return found


def _output_frames(output: CallOutput) -> bytes | None:
    """Returns the frames that the body returned; None when it returned no readable frames."""
    from fleetctl.providers.modal.functions import plain_pickle

    if output.data is None:
        return None
    return plain_pickle.unpickle_frames(output.data)


def _unknown_frames(output: bytes, journal_at: int) -> tuple[bytes, int]:
    """Returns the frames without journal lines before `journal_at`, and the next `journal_at`, in
    bytes. Output carries its own offset.
    """
    lines = []
    passed = 0
    for line in output.splitlines(keepends=True):
        if not line.startswith(_OF_THE_STREAM):
            passed += len(line)
            if passed <= journal_at:
                continue
        lines.append(line)
    return b"".join(lines), max(journal_at, passed)


def _winning_call(output: bytes) -> str:
    """Returns the id of the call that began the run, if this call came second; else empty."""
    if not output.startswith(b'{"e":"duplicate"'):
        return ""
    return str(json.loads(output.splitlines()[0])["call"])


def _explain_end(output: CallOutput, *, ours: bool) -> tuple[str, str]:
    """Returns (reason, message) of a call that ended without frames."""
    from fleetctl.providers.modal.functions import plain_pickle

    message = " ".join(output.exception.split())[:400].rstrip(".")
    match output.status:
        case plain_pickle.TERMINATED if ours:
            return Cause.STOPPED.value, "the call was cancelled"
        case plain_pickle.TERMINATED:
            return Cause.TERMINATED.value, "the call was cancelled from outside"
        case plain_pickle.TIMEOUT:
            return Cause.TIMEOUT.value, "Modal ended the call at the limit of its life"
        case plain_pickle.FAILURE if output.exit_code == KILLED or _mentions_memory(message):
            return Cause.OUT_OF_MEMORY.value, f"its container was killed: {message}"
        case plain_pickle.SUCCESS:
            return "GuestFailed", "the call returned what no guest writes"
    return "ContainerFailed", message or "its container failed and Modal gives no reason"


def _mentions_memory(message: str) -> bool:
    lower = message.lower()
    return "out of memory" in lower or "oom" in lower or f"exit code: {KILLED}" in lower


def _ending_frames(
    supervisor: str,
    output: CallOutput,
    reason: str,
    message: str,
) -> bytes:
    """Returns the frames of a failed run for a call that left no journal."""
    now_s = time.time()
    started_s = output.started_at_s or now_s
    started = {"e": "started", "at": started_s, "keeper": supervisor, "note": ""}
    own = reason == Cause.OUT_OF_MEMORY.value  # another container with that size would end it, too
    ended = {"e": "ended", "at": now_s, "started_at": started_s, "ok": False, "infra": not own}
    ended |= {"reason": reason, "message": message, "open": False, "note": ""}
    ended["exit"] = KILLED if own else None
    lines = (started, ended, {"e": "eof"})
    return b"".join(json.dumps(it, separators=(",", ":")).encode() + b"\n" for it in lines)


_: type[Sandboxes] = FunctionCalls
