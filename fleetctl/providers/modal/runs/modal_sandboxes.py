"""The sandboxes of our store at Modal, by id: looked up, checked for their owner, ended, listed,
and why one is over.

Facts that do not change are remembered: a sandbox's tags, and the connection to it while it lives.
A run's outcome never comes from here: only its journal's end record has it. The fate that is found
here sorts the sandboxes that left no end record.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.common.errors import FleetctlError, Refused, Unavailable
from fleetctl.providers.contract.base import Owned
from fleetctl.providers.modal.connection.modal_connection import ModalConnection, ModalSettings
from fleetctl.providers.modal.connection.modal_errors import (
    error_words,
    is_not_found,
    retryable_call,
    sdk_errors,
)
from fleetctl.providers.modal.runs import modal_streams
from fleetctl.providers.modal.runs.modal_streams import ModalExecChannel, ModalStream
from fleetctl.providers.remote.runs.follower import GuestEnded, SandboxOver
from fleetctl.providers.remote.sandboxes import sandbox_names
from fleetctl.providers.remote.sandboxes.sandbox_protocol import (
    Cause,
    Fate,
    RunWork,
    Sandboxes,
    StreamOffsets,
)
from fleetctl.providers.remote.service_calls import ToleratedAnswer

if TYPE_CHECKING:
    import modal


log = logging.getLogger("fleetctl.providers")

TAGS_KEPT_MAX = 50_000
END_S = 60.0  # to end a sandbox and see that it is over
RELOAD_S = 60.0  # the SDK itself waits no longer than 55 s
STREAMS_OPENED_AT_ONCE = 64
GUEST_TAG = "guest"
# The older backend runs all sandboxes with GPUs, and others when the SDK's environment asks for it;
# its sandboxes have this tag.
GPU_TAG = "gpu"
NO_GPU = "no"
_OLDER = re.compile(r"sb-[0-9A-Za-z]{22}")

KILLED = 137  # 128 + SIGKILL: left by a container's memory limit, and by any other kill


class ModalSandboxes:
    def __init__(
        self,
        connection: ModalConnection,
        store_id: str,
        settings: ModalSettings,
    ) -> None:
        self._connection = connection
        self._store_id = store_id
        self._settings = settings
        self._live: dict[str, modal.Sandbox] = {}
        self._client: modal.Client | None = None  # of all that is in it
        self._lines: dict[str, ModalStream] = {}  # those that wait for another run of their sandbox
        self._tags: OrderedDict[str, dict[str, str]] = OrderedDict()
        self._ended_by_us: set[str] = set()
        self._opening = asyncio.Semaphore(STREAMS_OPENED_AT_ONCE)

    # -- the Sandboxes protocol --------------------------------------------------------------------

    async def stream(
        self,
        handle: str,
        run: str,
        work: RunWork | None,
        at: StreamOffsets,
    ) -> AsyncGenerator[bytes, None]:
        # Only the opening stands in line: a quiet run sends no bytes for a long time after it.
        async with self._opening:
            line = await self._take_line(handle, run, work) if work is not None else None
            line = line or await self._attached(handle, run, work, at)
        try:
            async for data in line.frames:
                yield line.note_end(data)
            if not line.ended:
                async with asyncio.timeout(self._settings.call_s):
                    code = await line.process.wait.aio()
                raise GuestEnded(code)
        except GuestEnded:
            raise
        except sdk_errors() as error:
            raise ConnectionError(f"the stream of {handle} broke: {error_words(error)}") from error
        finally:
            if line.ended and line.takes_more and handle in self._live:
                self._lines[handle] = line

    async def fate(self, handle: str) -> Fate | None:
        sandbox = await self._get(handle)
        if sandbox is None:
            return Fate(Cause.UNKNOWN)
        from modal import exception as sdk

        what = f"sandbox `{handle}` cannot be looked at"
        timed_out = terminated = False
        try:
            async with retryable_call(what, deadline_s=self._settings.call_s):
                code = await sandbox.poll.aio()
                if code is None:
                    return None
                try:
                    await sandbox.wait.aio()
                except sdk.SandboxTimeoutError:
                    timed_out = True
                except sdk.SandboxTerminatedError:
                    terminated = True
        except sdk.NotFoundError:
            return Fate(Cause.UNKNOWN)
        older = _OLDER.fullmatch(handle) is not None
        preemptible = older and (await self.tags(handle)).get(GPU_TAG) != NO_GPU
        ours = handle in self._ended_by_us
        return resolve_fate(
            ModalFacts(
                code,
                timed_out,
                terminated,
                ours,
                preemptible,
            )
        )

    async def end(self, handle: str) -> None:
        from modal import exception as sdk

        sandbox = await self._get(handle)
        if sandbox is None:
            return
        self._ended_by_us.add(handle)
        # It may have been over before: that is an answer too.
        with suppress(sdk.NotFoundError, sdk.SandboxTimeoutError, sdk.SandboxTerminatedError):
            async with retryable_call(f"sandbox `{handle}` cannot be ended", deadline_s=END_S):
                await sandbox.terminate.aio(wait=True)
        self._ended_by_us.discard(handle)
        await self._let_go(handle)

    async def ask_stop(
        self,
        handle: str,
        run: str,
        grace_s: float,
    ) -> None:
        sandbox = await self._get(handle)
        if sandbox is None:
            return
        guest = (await self.tags(handle)).get(GUEST_TAG, "python")
        call_s = self._settings.call_s
        async with retryable_call(f"run `{run}` cannot be asked to stop", deadline_s=call_s):
            await sandbox.exec.aio(
                *modal_streams.stop_command(guest, run, grace_s), timeout=int(call_s)
            )

    async def find(self, run: str) -> str | None:
        """Returns the handle of the sandbox of a run, or None. Raises Refused when another program
        has a sandbox of that name.
        """
        client = await self._connection.client()
        import modal

        what = f"the sandbox of run `{run}` cannot be looked up"
        sandbox = None
        with ToleratedAnswer(is_not_found):
            async with retryable_call(what, deadline_s=self._settings.call_s):
                sandbox = await modal.Sandbox.from_name.aio(
                    self._connection.app_name, sandbox_names.sandbox_name(run), client=client
                )
        if sandbox is None:
            return None
        handle = sandbox.object_id
        self._turn_to(client)
        self._live.setdefault(handle, sandbox)
        carried = await self._read_tags(handle, sandbox)
        if carried is None:
            return None
        if not sandbox_names.is_of(carried, self._store_id, run):
            raise Refused(
                f"sandbox `{handle}` at Modal has the name of run `{run}` and is not ours",
                hint=f"modal sandbox terminate {handle}",
            )
        return handle

    async def line(self, handle: str, run: str) -> ModalExecChannel:
        """Opens a line of the relay; see RelayLines."""
        async with self._opening:
            sandbox, guest = await self._guest(handle)
            async with self._running(handle, f"the relay of run `{run}` cannot be joined"):
                argv = modal_streams.relay_command(guest, run)
                live_s = self._settings.lifetime_s
                process = await modal_streams.start_guest(sandbox, argv, live_s=live_s)
        return ModalExecChannel(process, deadline_s=self._settings.call_s)

    # -- for the provider alone --------------------------------------------------------------------

    async def living(self, handle: str) -> modal.Sandbox:
        """Returns a sandbox. Raises SandboxOver for one that Modal does not know."""
        sandbox = await self._get(handle)
        if sandbox is None:
            raise SandboxOver(handle)
        return sandbox

    def made(
        self,
        sandbox: modal.Sandbox,
        carried: dict[str, str],
        client: modal.Client,
    ) -> str:
        """Keeps a sandbox that we made, with its tags; returns its handle."""
        self._turn_to(client)
        self._live[sandbox.object_id] = sandbox
        self._keep_tags(sandbox.object_id, carried)
        return sandbox.object_id

    def heed(self, error: FleetctlError, client: modal.Client) -> None:
        """Handles a refused token: the account may have another by now, so it is read again."""
        if isinstance(error, Unavailable) and error.account:
            self._connection.mark_refused(client)

    async def scheduled(self, handle: str) -> None:
        """Waits until a sandbox that was made before has its machine, or is over."""
        sandbox = await self._get(handle)
        with ToleratedAnswer(_means_ended):
            if sandbox is not None:
                await sandbox.exec.aio("true", timeout=int(self._settings.call_s))

    async def reload(self, handle: str) -> bool:
        """Reloads the volumes in the sandbox, with the commits of others. False when Modal refuses,
        as it does while any process there has a file of a volume open.
        """
        sandbox = await self._get(handle)
        if sandbox is None:
            return True  # over; its other users get an error
        from modal import exception as sdk

        what = f"the volumes of sandbox `{handle}` cannot be reloaded"
        try:
            async with retryable_call(what, deadline_s=RELOAD_S):
                try:
                    await sandbox.reload_volumes.aio()
                except (sdk.InvalidError, sdk.UnimplementedError) as error:
                    log.warning(
                        "volumes not reloaded", extra={"sandbox": handle, "why": str(error)}
                    )
                    return False
        except sdk.NotFoundError:
            return True
        return True

    async def is_ours(self, handle: str) -> bool:
        """Returns whether the sandbox is this store's. Raises Unavailable when its tags cannot be
        read: then it must not be touched.
        """
        return sandbox_names.is_ours(await self.tags(handle), self._store_id)

    async def tags(self, handle: str) -> dict[str, str]:
        """The sandbox's tags, asked once for each; {} when the sandbox no longer exists."""
        if handle not in self._tags:
            sandbox = await self._get(handle)
            if sandbox is None or await self._read_tags(handle, sandbox) is None:
                return {}
        return self._tags[handle]

    async def age_s(self, handle: str) -> float:
        """Returns how old the sandbox is at least, by our own clock."""
        made_at_s = sandbox_names.made_at_s(await self.tags(handle))
        if made_at_s:
            return max(0.0, time.time() - made_at_s)
        return 0.0

    async def owned(self) -> list[Owned]:
        """Returns every live sandbox of the store. Raises Unavailable when any part of the list is
        unknown.
        """
        app = await self._connection.app_if_any()
        if app is None:
            return []
        client = await self._connection.client()
        import modal

        what = "the sandboxes at Modal cannot be listed"
        async with retryable_call(what, deadline_s=self._settings.call_s):
            listing = modal.Sandbox.list.aio(
                app_id=app.app_id,
                tags=sandbox_names.fleet_tag(self._store_id),
                client=client,
            )
            listed = [sandbox async for sandbox in listing]
        found = []
        for sandbox in listed:
            handle = sandbox.object_id
            carried = self._tags.get(handle) or await self._read_tags(handle, sandbox)
            if carried is not None and sandbox_names.is_ours(carried, self._store_id):
                found.append(
                    Owned(sandbox_names.run_of(carried), handle, sandbox_names.made_at_s(carried))
                )
        return found

    # -- helpers -----------------------------------------------------------------------------------

    async def _take_line(
        self,
        handle: str,
        run: str,
        work: RunWork,
    ) -> ModalStream | None:
        """Returns the line that an earlier run of the same sandbox left open, or None."""
        line = self._lines.pop(handle, None)
        if line is None:
            return None
        try:
            async with asyncio.timeout(self._settings.call_s):
                return line if await modal_streams.hand_run(line, run, work) else None
        except sdk_errors() as error:
            if _means_ended(error):
                return None  # not taken: a line that was cut off begins no work
            raise ConnectionError(f"run `{run}` may have been handed to {handle}") from error

    async def _attached(
        self,
        handle: str,
        run: str,
        work: RunWork | None,
        at: StreamOffsets,
    ) -> ModalStream:
        """Opens a stream to the guest. Raises SandboxOver when no command can be run in the sandbox
        any more.
        """
        sandbox, guest = await self._guest(handle)
        argv = modal_streams.attach_command(guest, run, at)
        posix = guest == "posix"
        async with self._running(handle, f"run `{run}` cannot be attached to"):
            return await modal_streams.open_stream(
                sandbox,
                argv,
                work,
                posix=posix,
                live_s=self._settings.lifetime_s,
            )

    async def _guest(self, handle: str) -> tuple[modal.Sandbox, str]:
        """Returns (the sandbox, which guest it has). Raises SandboxOver."""
        sandbox = await self.living(handle)
        return sandbox, (await self.tags(handle)).get(GUEST_TAG, "python")

    @asynccontextmanager
    async def _running(self, handle: str, what: str) -> AsyncIterator[None]:
        """Around the start of a command there."""
        try:
            async with asyncio.timeout(self._settings.call_s):
                yield
        except sdk_errors() as error:
            if _means_ended(error):
                raise SandboxOver(handle) from error
            raise ConnectionError(what) from error

    async def _get(self, handle: str) -> modal.Sandbox | None:
        """Returns the sandbox; None when Modal does not know the id."""
        client = await self._connection.client()
        self._turn_to(client)
        if handle not in self._live:
            import modal

            sandbox = None
            with ToleratedAnswer(is_not_found):
                async with retryable_call(
                    f"sandbox `{handle}` cannot be looked up", deadline_s=self._settings.call_s
                ):
                    sandbox = await modal.Sandbox.from_id.aio(handle, client=client)
            if sandbox is None:
                return None
            self._live.setdefault(handle, sandbox)
        return self._live[handle]

    def _turn_to(self, client: modal.Client) -> None:
        """Drops the sandboxes of a client that was left: its token may be refused by now."""
        if client is not self._client:
            self._live.clear()
            self._client = client

    async def _read_tags(self, handle: str, sandbox: modal.Sandbox) -> dict[str, str] | None:
        what = f"the tags of sandbox `{handle}` cannot be read"
        with ToleratedAnswer(is_not_found):
            async with retryable_call(what, deadline_s=self._settings.call_s):
                carried = await sandbox.get_tags.aio()
            self._keep_tags(handle, carried)
            return carried
        return None

    def _keep_tags(self, handle: str, carried: dict[str, str]) -> None:
        self._tags[handle] = carried
        while len(self._tags) > TAGS_KEPT_MAX:
            self._tags.popitem(last=False)

    async def _let_go(self, handle: str) -> None:
        """Gives its connection back at once; the SDK would hold it for half a minute."""
        self._lines.pop(handle, None)
        sandbox = self._live.pop(handle, None)
        if sandbox is not None:
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(self._settings.call_s):
                    await sandbox.detach.aio()


def _means_ended(error: Exception) -> bool:
    """A command cannot be run there for good."""
    from modal import exception as sdk

    return isinstance(error, sdk.NotFoundError | sdk.ConflictError | sdk.ClientClosed)


_: type[Sandboxes] = ModalSandboxes


@dataclass(frozen=True, slots=True)
class ModalFacts:
    """timed_out and terminated: what `wait()` raised; without either, code is the entrypoint's.

    ours: we asked for its end. preemptible: it had a GPU, and only those are preempted.
    """

    code: int
    timed_out: bool = False
    terminated: bool = False
    ours: bool = False
    preemptible: bool = False


# The first that holds. Ends that we requested come first: a terminate looks like a kill.
_RULES: tuple[tuple[Callable[[ModalFacts], bool], Cause], ...] = (
    (lambda facts: facts.ours, Cause.STOPPED),
    (lambda facts: facts.timed_out, Cause.TIMEOUT),
    (lambda facts: facts.terminated, Cause.TERMINATED),
    # Modal reports no code of a program for a machine that it takes away. A kill might be that,
    # too; a run without enough memory must have that reason, or it is tried again in vain on each
    # machine.
    (lambda facts: facts.code == KILLED, Cause.OUT_OF_MEMORY),
    (lambda facts: facts.preemptible, Cause.PREEMPTED),
    # Also code 0: Modal has put it on sandboxes that its own failures ended.
    (lambda _: True, Cause.LOST),
)


def resolve_fate(facts: ModalFacts) -> Fate:
    cause = next(cause for holds, cause in _RULES if holds(facts))
    if cause is Cause.OUT_OF_MEMORY:
        # Another machine of the same size would end it, too: each attempt costs, without any help.
        return Fate(cause, f"Modal says exit code {facts.code}", own=True, exit_code=facts.code)
    return Fate(cause, "" if cause is Cause.STOPPED else f"Modal says exit code {facts.code}")
