"""The sandboxes of our store at Daytona, by id: looked up, checked for their owner, ended, listed.

Made by daytona_provider.py; the shared part (providers/remote) asks it through its five verbs.
Decides by `get`, which is never stale, and never by a list, which is an index that lags.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import datetime
from secrets import token_hex

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.providers.contract.base import Owned
from fleetctl.providers.daytona.connection import sdk
from fleetctl.providers.daytona.connection.daytona_connection import (
    DaytonaConnection,
    DaytonaSettings,
)
from fleetctl.providers.daytona.connection.daytona_errors import (
    Throttles,
    classify_error,
    error_words,
    is_not_found,
    is_of_the_sdk,
    is_rate_limit,
    retryable_call,
)
from fleetctl.providers.daytona.runs import daytona_endings, daytona_streams
from fleetctl.providers.daytona.runs.daytona_endings import (
    ENDS_LABEL,
    DaytonaFacts,
    delete_sandbox,
    state_of,
)
from fleetctl.providers.daytona.runs.daytona_streams import DaytonaExecChannel, Guest
from fleetctl.providers.remote.runs.follower import GuestEnded, SandboxOver
from fleetctl.providers.remote.sandboxes import sandbox_names
from fleetctl.providers.remote.sandboxes.sandbox_protocol import (
    Fate,
    RunWork,
    Sandboxes,
    StreamOffsets,
)
from fleetctl.providers.remote.service_calls import ToleratedAnswer

KEPT_MAX = 50_000
END_S = 120.0  # to end a sandbox and see that it is over
GUEST_LABEL = "guest"
PAUSED_AFTER_S = 15.0
LISTED_STILL_S = 60.0  # the index may show what is destroyed; after that it is asked about


class DaytonaSandboxes:
    def __init__(
        self,
        connection: DaytonaConnection,
        store_id: str,
        settings: DaytonaSettings,
    ) -> None:
        self._connection = connection
        self._store_id = store_id
        self._settings = settings
        self._live: dict[str, sdk.AsyncSandbox] = {}
        # Sandboxes without a confirmed end, by their last look: one that is reported gone is ended
        # by it all the same.
        self._held: OrderedDict[str, sdk.AsyncSandbox] = OrderedDict()
        self._ends_at_s: dict[str, float] = {}
        self._labels: OrderedDict[str, dict[str, str]] = OrderedDict()
        self._sessions: dict[tuple[str, str], str] = {}  # (handle, run) -> where we follow
        self._work_dirs: dict[str, str] = {}
        self._ended_by_us: dict[str, float] = {}  # handle -> when that was confirmed, or 0.0
        self.throttles = Throttles()

    # -- the Sandboxes protocol --------------------------------------------------------------------

    async def stream(
        self,
        handle: str,
        run: str,
        work: RunWork | None,
        at: StreamOffsets,
    ) -> AsyncGenerator[bytes, None]:
        what = f"the stream of {handle} broke"
        self.throttles.toolbox.check(what)
        sandbox = await self.living(handle)
        guest = Guest.of_label(sandbox.labels.get(GUEST_LABEL, ""))
        try:
            async with aclosing(
                self._frames(
                    sandbox,
                    guest,
                    run,
                    work,
                    at,
                )
            ) as frames:
                async for data in frames:
                    yield data
        except GuestEnded:
            self._live.pop(handle, None)  # the next stream looks first whether it is over
            raise
        except Exception as error:  # the SDK's errors share no class
            certain_error = classify_error(error, what) if is_rate_limit(error) else None
            if certain_error is not None:
                self.throttles.toolbox.hear(certain_error)
                raise certain_error from error
            self._live.pop(handle, None)  # perhaps it is over: the next stream looks first
            if is_of_the_sdk(error):
                raise ConnectionError(f"{what}: {error_words(error)}") from error
            raise

    async def _frames(
        self,
        sandbox: sdk.AsyncSandbox,
        guest: Guest,
        run: str,
        work: RunWork | None,
        at: StreamOffsets,
    ) -> AsyncGenerator[bytes, None]:
        if work is not None:
            async with asyncio.timeout(self._settings.call_s + self._settings.quick_s):
                first = await daytona_streams.begin_run(
                    sandbox,
                    guest,
                    run,
                    work,
                    at,
                    for_s=self._settings.quick_s,
                )
            yield first
            reached = daytona_streams.count_reached(first, at)
            if reached.over:
                return
            at = reached.at
        key = (sandbox.id, run)
        async with asyncio.timeout(self._settings.call_s):
            session = await daytona_streams.open_session(sandbox, run, self._sessions.get(key))
        self._sessions[key] = session
        async with aclosing(
            daytona_streams.follow_run(
                sandbox,
                guest,
                run,
                session,
                at,
            )
        ) as followed:
            async for data in followed:
                yield data

    async def fate(self, handle: str) -> Fate | None:
        sandbox = await self.get(handle)
        state = "" if sandbox is None else state_of(sandbox)
        if state in daytona_endings.PAUSED:
            raise Unavailable(
                f"sandbox `{handle}` is `{state}` at Daytona, so nothing runs in it",
                reason="Paused",
                retry_after_s=PAUSED_AFTER_S,
                hint="start it at app.daytona.io/dashboard, and its work goes on",
            )
        if not daytona_endings.is_over(state):
            return None
        facts = DaytonaFacts(state, ours=handle in self._ended_by_us)
        if sandbox is not None:
            facts = DaytonaFacts(
                state,
                ours=facts.ours,
                evicted=bool(sandbox.spot_evicted_at),
                queue_timed_out=bool(sandbox.queue_timed_out_at),
                expired=_ends_at_s(sandbox) <= time.time(),
                error=sandbox.error_reason or "",
            )
            if state != daytona_endings.GONE:
                # A failed or stopped sandbox is still held, and paid for.
                await self.end(handle)
        if sandbox is None and not facts.ours:
            self._live.pop(handle, None)  # the next stream looks; should it be there, it is ended
        else:
            self._let_go(handle)
        return daytona_endings.resolve_fate(facts)

    async def end(self, handle: str) -> None:
        """Ends the sandbox by its id after any look-up: only the delete's answer is trusted that
        there is no such sandbox.
        """
        sandbox = self._live.get(handle) or self._held.get(handle) or await self.get(handle)
        if sandbox is None or state_of(sandbox) == daytona_endings.GONE:
            self._let_go(handle)
            return
        self._ended_by_us.setdefault(handle, 0.0)
        what = f"sandbox `{handle}` cannot be ended"
        async with retryable_call(what, deadline_s=END_S, throttle=self.throttles.ends):
            await delete_sandbox(sandbox)
        self._ended_by_us[handle] = time.monotonic()
        self._let_go(handle)

    async def ask_stop(
        self,
        handle: str,
        run: str,
        grace_s: float,
    ) -> None:
        sandbox = self._live.get(handle) or await self.get(handle)
        if sandbox is None:
            return
        guest = Guest.of_label(sandbox.labels.get(GUEST_LABEL, ""))
        call_s = self._settings.call_s
        toolbox = self.throttles.toolbox
        what = f"run `{run}` cannot be asked to stop"
        async with retryable_call(what, deadline_s=call_s, throttle=toolbox):
            await sandbox.process.exec(daytona_streams.stop_command(guest, run, grace_s))

    async def find(self, run: str) -> str | None:
        sandbox = await self.named(run)
        if sandbox is None:
            return None
        return sandbox.id

    async def line(self, handle: str, run: str) -> DaytonaExecChannel:
        """Opens a line of the relay; see RelayLines."""
        sandbox = await self.living(handle)
        guest = Guest.of_label(sandbox.labels.get(GUEST_LABEL, ""))
        session = f"relay-{token_hex(6)}"
        call_s = self._settings.call_s
        what = f"the relay of run `{run}` cannot be joined"
        toolbox = self.throttles.toolbox
        try:
            async with retryable_call(what, deadline_s=2 * call_s, throttle=toolbox):
                await sandbox.process.create_session(session)
                command = await daytona_streams.begin_channel_command(
                    sandbox, session, daytona_streams.relay_command(guest, run)
                )
        except Exception as error:  # the SDK's errors share no class
            self._live.pop(handle, None)  # perhaps it is over: the next line looks first
            if is_of_the_sdk(error):
                raise ConnectionError(f"{what}: {error_words(error)}") from error
            raise
        return DaytonaExecChannel(sandbox, session, command, deadline_s=call_s)

    # -- for the provider alone --------------------------------------------------------------------

    async def living(self, handle: str) -> sdk.AsyncSandbox:
        """Returns a sandbox in which commands can begin. Raises SandboxOver, and as `get`."""
        sandbox = self._live.get(handle) or await self.get(handle)
        if sandbox is None or not daytona_endings.may_work(state_of(sandbox)):
            raise SandboxOver(handle)
        return sandbox

    def name_of(self, run: str) -> str:
        """Names are unique in a whole organization, which may have several stores."""
        return sandbox_names.sandbox_name(f"{self._store_id}-{run}")

    async def named(self, run: str) -> sdk.AsyncSandbox | None:
        """The sandbox with the run's name. Raises Refused when what has the name is not ours."""
        sandbox = await self.get(self.name_of(run))
        if sandbox is None:
            return None
        if not sandbox_names.is_of(sandbox.labels, self._store_id, run):
            raise Refused(
                f"sandbox `{sandbox.id}` at Daytona has the name of run `{run}` and is not ours",
                hint=f"delete sandbox {sandbox.id} at app.daytona.io, or rename it",
            )
        return sandbox

    def keep(self, sandbox: sdk.AsyncSandbox) -> str:
        """Keeps a sandbox that lives; returns its handle."""
        self._live[sandbox.id] = self._held[sandbox.id] = sandbox
        self._labels[sandbox.id] = dict(sandbox.labels)
        self._ends_at_s[sandbox.id] = _ends_at_s(sandbox)
        while len(self._labels) > KEPT_MAX:
            oldest, _ = self._labels.popitem(last=False)
            self._ends_at_s.pop(oldest, None)
            self._held.pop(oldest, None)
        return sandbox.id

    async def get(self, id_or_name: str) -> sdk.AsyncSandbox | None:
        """Returns the sandbox as it is now; None when Daytona does not know it."""
        client = await self._connection.client()
        call_s = self._settings.call_s
        sandbox = None
        with ToleratedAnswer(is_not_found):
            what = f"sandbox `{id_or_name}` cannot be looked up"
            async with retryable_call(what, deadline_s=call_s, throttle=self.throttles.looks):
                sandbox = await client.get(id_or_name, request_timeout=call_s)
        if sandbox is not None:
            self.keep(sandbox)
        return sandbox

    async def is_ours(self, handle: str) -> bool:
        """Returns whether the sandbox is this store's. Raises Unavailable when its labels cannot be
        read: then it must not be touched.
        """
        return sandbox_names.is_ours(await self.labels(handle), self._store_id)

    async def labels(self, handle: str) -> dict[str, str]:
        """The sandbox's labels, asked once for each; {} when the sandbox no longer exists."""
        if handle not in self._labels and await self.get(handle) is None:
            return {}
        return self._labels[handle]

    async def left_s(self, handle: str) -> float:
        """Returns the seconds that are left of its life, as Daytona itself granted them: an
        organization may grant less than was asked for.
        """
        await self.labels(handle)
        ends_at_s = self._ends_at_s.get(handle, math.inf)
        if ends_at_s < math.inf:
            return ends_at_s - time.time()
        return self._settings.lifetime_s

    async def work_dir(self, handle: str) -> str:
        """Returns where its commands begin."""
        if handle not in self._work_dirs:
            sandbox = self._live.get(handle) or await self.get(handle)
            if sandbox is None:
                return "/"
            what = f"the directories of sandbox `{handle}` cannot be looked up"
            call_s = self._settings.call_s
            toolbox = self.throttles.toolbox
            async with retryable_call(what, deadline_s=call_s, throttle=toolbox):
                self._work_dirs[handle] = (await sandbox.get_work_dir()).rstrip("/") or "/"
        return self._work_dirs[handle]

    async def owned(self) -> list[Owned]:
        """Returns every live sandbox of our store, as far as the index knows. Raises Unavailable
        when it cannot be read whole.
        """
        client = await self._connection.client()
        query = sdk.ListSandboxesQuery(labels=sandbox_names.fleet_tag(self._store_id))
        what = "the sandboxes at Daytona cannot be listed"
        call_s = self._settings.call_s
        looks = self.throttles.looks
        async with retryable_call(what, deadline_s=2 * call_s, throttle=looks):
            listed = [sandbox async for sandbox in client.list(query)]
        return [
            Owned(sandbox_names.run_of(one.labels), one.id, _since_s(one.labels))
            for one in listed
            if daytona_endings.is_listed(state_of(one)) and not self._ended_lately(one.id)
        ]

    # -- helpers -----------------------------------------------------------------------------------

    def _ended_lately(self, handle: str) -> bool:
        """Returns whether its end was confirmed so lately that a list may show it still; later a
        listed sandbox is not one of our ended ones.
        """
        at_s = self._ended_by_us.get(handle)
        return bool(at_s) and time.monotonic() - (at_s or 0.0) < LISTED_STILL_S

    def _let_go(self, handle: str) -> None:
        self._live.pop(handle, None)
        self._held.pop(handle, None)
        self._work_dirs.pop(handle, None)
        for key in [key for key in self._sessions if key[0] == handle]:
            del self._sessions[key]


def _since_s(labels: dict[str, str]) -> float:
    """Returns since when it needs a record. A helper has no record: a user's command uses it for
    its life.
    """
    ends_at_s = labels.get(ENDS_LABEL, "")
    if sandbox_names.is_helper(labels) and ends_at_s.isdigit():
        return float(ends_at_s)
    return sandbox_names.made_at_s(labels)


def _ends_at_s(sandbox: sdk.AsyncSandbox) -> float:
    """Returns when Daytona ends the sandbox, by its own word before ours; infinite where neither is
    known.
    """
    asked = dict(sandbox.labels).get(ENDS_LABEL, "")
    ends_at_s = float(asked) if asked.isdigit() else math.inf
    granted = sandbox.auto_destroy_at
    if not granted:
        return ends_at_s
    try:
        ends_at = datetime.fromisoformat(granted)
    except ValueError:
        return ends_at_s
    return min(ends_at_s, ends_at.timestamp())


_: type[Sandboxes] = DaytonaSandboxes
