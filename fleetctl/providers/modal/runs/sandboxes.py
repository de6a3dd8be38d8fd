"""The sandboxes of our store at Modal, by id: looked up, told whose they are, ended, listed.

Made by provider.py; the shared part (providers/remote) asks it through its five verbs. Remembers
what does not change: a sandbox's tags, and the connection to it while it lives.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from fleetctl.common.errors import FleetctlError, Refused, Unavailable
from fleetctl.providers.contract.base import Owned
from fleetctl.providers.modal.connection.client import Connection
from fleetctl.providers.modal.connection.errors import asking, is_not_found, is_of_the_sdk
from fleetctl.providers.modal.connection.settings import Settings
from fleetctl.providers.modal.runs import endings, streams
from fleetctl.providers.modal.runs.endings import Facts
from fleetctl.providers.modal.runs.streams import Line
from fleetctl.providers.modal.runs.talk import Talk
from fleetctl.providers.remote.runs.follower import SandboxOver
from fleetctl.providers.remote.sandboxes import names
from fleetctl.providers.remote.sandboxes.base import At, Sandboxes, Work
from fleetctl.providers.remote.sandboxes.fates import Cause, Fate

if TYPE_CHECKING:
    import modal

log = logging.getLogger("fleetctl.providers")

TAGS_KEPT_MAX = 50_000
END_S = 60.0  # to end a sandbox and hear that it is over
RELOAD_S = 60.0  # the SDK itself waits no longer than 55 s
STREAMS_OPENED_AT_ONCE = 64
GUEST_TAG = "guest"
# Of the older backend, which runs all sandboxes with GPUs, and others when the SDK's environment
# says so; those have this tag.
GPU_TAG, NO_GPU = "gpu", "no"
_OLDER = re.compile(r"sb-[0-9A-Za-z]{22}")


class ModalSandboxes:
    def __init__(self, connection: Connection, store_id: str, settings: Settings) -> None:
        self._connection = connection
        self._store_id = store_id
        self._settings = settings
        self._live: dict[str, modal.Sandbox] = {}
        self._client: modal.Client | None = None  # of all that is in it
        self._lines: dict[str, Line] = {}  # those that wait for another run of their sandbox
        self._tags: OrderedDict[str, dict[str, str]] = OrderedDict()
        self._ended_by_us: set[str] = set()
        self._opening = asyncio.Semaphore(STREAMS_OPENED_AT_ONCE)

    # -- what the shared part asks -----------------------------------------------------------------

    async def stream(
        self, handle: str, run: str, work: Work | None, at: At
    ) -> AsyncGenerator[bytes, None]:
        # Only the opening stands in line: a quiet run says nothing for a long time after it.
        async with self._opening:
            line = await self._handed(handle, run, work) if work is not None else None
            line = line or await self._attached(handle, run, work, at)
        try:
            async for data in line.frames:
                yield line.heard(data)
            if not line.ended:
                async with asyncio.timeout(self._settings.call_s):
                    code = await line.process.wait.aio()
                raise ConnectionError(f"the guest ended with exit code {code}")
        except Exception as error:
            if is_of_the_sdk(error):
                raise ConnectionError(f"the stream of {handle} broke") from error
            raise
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
            async with asking(what, deadline_s=self._settings.call_s):
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
        return endings.fate(Facts(code, timed_out, terminated, ours, preemptible))

    async def end(self, handle: str) -> None:
        from modal import exception as sdk

        sandbox = await self._get(handle)
        if sandbox is None:
            return
        self._ended_by_us.add(handle)
        # It may have been over before: that is an answer too.
        with suppress(sdk.NotFoundError, sdk.SandboxTimeoutError, sdk.SandboxTerminatedError):
            async with asking(f"sandbox `{handle}` cannot be ended", deadline_s=END_S):
                await sandbox.terminate.aio(wait=True)
        self._ended_by_us.discard(handle)
        await self._let_go(handle)

    async def ask_stop(self, handle: str, run: str, grace_s: float) -> None:
        sandbox = await self._get(handle)
        if sandbox is None:
            return
        guest = (await self.tags(handle)).get(GUEST_TAG, "python")
        call_s = self._settings.call_s
        async with asking(f"run `{run}` cannot be asked to stop", deadline_s=call_s):
            await sandbox.exec.aio(*streams.stop_command(guest, run, grace_s), timeout=int(call_s))

    async def find(self, run: str) -> str | None:
        """Raises Refused when what has the name is not ours."""
        client = await self._connection.client()
        import modal

        what = f"the sandbox of run `{run}` cannot be looked up"
        try:
            async with asking(what, deadline_s=self._settings.call_s):
                sandbox = await modal.Sandbox.from_name.aio(
                    self._connection.app_name, names.sandbox_name(run), client=client
                )
        except Exception as error:
            if is_not_found(error):
                return None
            raise
        handle = sandbox.object_id
        self._turn_to(client)
        self._live.setdefault(handle, sandbox)
        carried = await self._asked_tags(handle, sandbox)
        if carried is None:
            return None
        if not names.is_of(carried, self._store_id, run):
            raise Refused(
                f"sandbox `{handle}` at Modal has the name of run `{run}` and is not ours",
                hint=f"modal sandbox terminate {handle}",
            )
        return handle

    async def line(self, handle: str, run: str) -> Talk:
        """See Lines of the relay."""
        async with self._opening:
            sandbox, guest = await self._guest(handle)
            async with self._running(handle, f"the relay of run `{run}` cannot be joined"):
                argv, live_s = streams.relay_command(guest, run), self._settings.lifetime_s
                process = await streams.talk_to(sandbox, argv, live_s=live_s)
        return Talk(process, deadline_s=self._settings.call_s)

    # -- what the provider asks --------------------------------------------------------------------

    def made(self, sandbox: modal.Sandbox, carried: dict[str, str], client: modal.Client) -> str:
        """Remember a sandbox that we made, with its tags; its handle."""
        self._turn_to(client)
        self._live[sandbox.object_id] = sandbox
        self._keep_tags(sandbox.object_id, carried)
        return sandbox.object_id

    def heed(self, error: FleetctlError, client: modal.Client) -> None:
        """A token that was refused may be another by now: it is read anew."""
        if isinstance(error, Unavailable) and error.account:
            self._connection.doubt(client)

    async def scheduled(self, handle: str) -> None:
        """Wait until a sandbox that was made before has its machine, or is over."""
        sandbox = await self._get(handle)
        try:
            if sandbox is not None:
                await sandbox.exec.aio("true", timeout=int(self._settings.call_s))
        except Exception as error:
            if not _says_over(error):
                raise

    async def reload(self, handle: str) -> bool:
        """Show in the sandbox what others have committed to its volumes. False when Modal refuses,
        as it does while any process there has a file of a volume open.
        """
        sandbox = await self._get(handle)
        if sandbox is None:
            return True  # over; who goes on to use it is told so
        from modal import exception as sdk

        what = f"the volumes of sandbox `{handle}` cannot be reloaded"
        try:
            async with asking(what, deadline_s=RELOAD_S):
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
        """Raises Unavailable when its tags cannot be read: then nobody may touch it."""
        return names.is_ours(await self.tags(handle), self._store_id)

    async def tags(self, handle: str) -> dict[str, str]:
        """The sandbox's tags, asked once for each; {} when the sandbox no longer exists."""
        if handle not in self._tags:
            sandbox = await self._get(handle)
            if sandbox is None or await self._asked_tags(handle, sandbox) is None:
                return {}
        return self._tags[handle]

    async def age_s(self, handle: str) -> float:
        """How old the sandbox is at least, by our own clock."""
        made_at_s = names.made_at_s(await self.tags(handle))
        return max(0.0, time.time() - made_at_s) if made_at_s else 0.0

    async def owned(self) -> list[Owned]:
        """Every live one of our store. Raises Unavailable when anything of it is not known."""
        app = await self._connection.app_if_any()
        if app is None:
            return []
        client = await self._connection.client()
        import modal

        what = "the sandboxes at Modal cannot be listed"
        async with asking(what, deadline_s=self._settings.call_s):
            listing = modal.Sandbox.list.aio(
                app_id=app.app_id, tags=names.fleet_tag(self._store_id), client=client
            )
            listed = [sandbox async for sandbox in listing]
        found = []
        for sandbox in listed:
            handle = sandbox.object_id
            carried = self._tags.get(handle) or await self._asked_tags(handle, sandbox)
            if carried is not None and names.is_ours(carried, self._store_id):
                found.append(Owned(names.run_of(carried), handle, names.made_at_s(carried)))
        return found

    # -- helpers -----------------------------------------------------------------------------------

    async def _handed(self, handle: str, run: str, work: Work) -> Line | None:
        """The line that an earlier run of the same sandbox left open; None when there is none."""
        line = self._lines.pop(handle, None)
        if line is None:
            return None
        try:
            async with asyncio.timeout(self._settings.call_s):
                return line if await streams.hand(line, run, work) else None
        except Exception as error:
            if _says_over(error):
                return None  # nobody took it: a line that was cut off begins nothing
            if is_of_the_sdk(error):
                raise ConnectionError(f"run `{run}` may have been handed to {handle}") from error
            raise

    async def _attached(self, handle: str, run: str, work: Work | None, at: At) -> Line:
        """Raises SandboxOver when no command can be run there any more."""
        sandbox, guest = await self._guest(handle)
        argv, posix = streams.attach_command(guest, run, at), guest == "posix"
        async with self._running(handle, f"run `{run}` cannot be attached to"):
            return await streams.attach(
                sandbox, argv, work, posix=posix, live_s=self._settings.lifetime_s
            )

    async def _guest(self, handle: str) -> tuple[modal.Sandbox, str]:
        """(the sandbox, which guest it has). Raises SandboxOver."""
        sandbox = await self._get(handle)
        if sandbox is None:
            raise SandboxOver(handle)
        return sandbox, (await self.tags(handle)).get(GUEST_TAG, "python")

    @asynccontextmanager
    async def _running(self, handle: str, what: str) -> AsyncIterator[None]:
        """Around the start of a command there."""
        try:
            async with asyncio.timeout(self._settings.call_s):
                yield
        except Exception as error:
            if _says_over(error):
                raise SandboxOver(handle) from error
            if is_of_the_sdk(error):
                raise ConnectionError(what) from error
            raise

    async def _get(self, handle: str) -> modal.Sandbox | None:
        """The sandbox; None when Modal does not know the id."""
        client = await self._connection.client()
        self._turn_to(client)
        if handle not in self._live:
            import modal

            try:
                async with asking(
                    f"sandbox `{handle}` cannot be looked up", deadline_s=self._settings.call_s
                ):
                    sandbox = await modal.Sandbox.from_id.aio(handle, client=client)
            except Exception as error:
                if is_not_found(error):
                    return None
                raise
            self._live.setdefault(handle, sandbox)
        return self._live[handle]

    def _turn_to(self, client: modal.Client) -> None:
        """Those of a client that was left ask with a token that may be refused by now."""
        if client is not self._client:
            self._live.clear()
            self._client = client

    async def _asked_tags(self, handle: str, sandbox: modal.Sandbox) -> dict[str, str] | None:
        what = f"the tags of sandbox `{handle}` cannot be read"
        try:
            async with asking(what, deadline_s=self._settings.call_s):
                carried = await sandbox.get_tags.aio()
        except Exception as error:
            if is_not_found(error):
                return None
            raise
        self._keep_tags(handle, carried)
        return carried

    def _keep_tags(self, handle: str, carried: dict[str, str]) -> None:
        self._tags[handle] = carried
        while len(self._tags) > TAGS_KEPT_MAX:
            self._tags.popitem(last=False)

    async def _let_go(self, handle: str) -> None:
        """Give its connection back at once; the SDK would hold it for half a minute."""
        self._lines.pop(handle, None)
        sandbox = self._live.pop(handle, None)
        if sandbox is not None:
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(self._settings.call_s):
                    await sandbox.detach.aio()  # type: ignore[no-untyped-call]


def _says_over(error: Exception) -> bool:
    """A command cannot be run there for good."""
    from modal import exception as sdk

    return isinstance(error, sdk.NotFoundError | sdk.ConflictError | sdk.ClientClosed)


_: type[Sandboxes] = ModalSandboxes
