"""Provider `local`: the four verbs for runs, and the assets, on this machine.

Built by wiring; called by the engine. It keeps no truth of its own: journals, locks and directories
below $FLEETCTL_HOME/local do, so that the next controller finds everything.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.common.finding import Finding
from fleetctl.controllers.model import Ended, Gone, Observation
from fleetctl.guest.journal.ending import size_text
from fleetctl.guest.task.program import DISK_FULL
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.base import (
    BEGUN_AS_ANOTHER,
    Backend,
    FunctionAsset,
    LogChunk,
    Notify,
    Owned,
    RunRef,
    RunRequest,
)
from fleetctl.providers.contract.terms import Contract
from fleetctl.providers.local import local_preflight
from fleetctl.providers.local.assets import local_source, local_volumes
from fleetctl.providers.local.local_layout import LocalLayout, supervisor_name, uid_of
from fleetctl.providers.local.runs import gpu_claims, supervisor_messages
from fleetctl.providers.local.runs.gpu_claims import GpuClaims
from fleetctl.providers.local.runs.supervisor_link import SupervisorGone
from fleetctl.providers.local.runs.supervisor_messages import mark_of, start_message
from fleetctl.providers.local.runs.supervisors import Supervisors
from fleetctl.providers.paths import make_private
from fleetctl.providers.rundir.journal_runs import (
    AT_END,
    JournalRuns,
    describe_run,
    with_last_words,
)
from fleetctl.providers.rundir.kept_outputs import has_outputs, sync_pack
from fleetctl.providers.rundir.run_journal import RunJournal
from fleetctl.providers.rundir.run_log_reader import RunLogReader
from fleetctl.specs.blocks.nodes import nodes_of
from fleetctl.specs.blocks.template import Template

TIERS = ("auto", "namespaces", "process")
NODES_MAX = 64  # on one machine: more is a slip of the pen
ROOM_BYTES_MIN = 4 << 20  # for work directory, journal and log of what begins, and for the store
ROOM_LOOK_S, FULL_S = 5.0, 30.0  # between two looks for room; after a start that found too little
START_TRIES = 3  # a supervisor may leave just as an order arrives

CONTRACT = Contract(
    visibility_bound_s=0.0,
    list_shows_finished=False,
    strong_get=True,
    max_lifetime_s=None,
    billing_quantum_s=0.0,
    calls_per_s=5000.0,
    calls_at_once=256,
    call_deadline_s=900.0,  # building an environment is part of a start
    default_parallelism=os.cpu_count() or 1,
    poll_s=30.0,
    # Most tasks wait for something other than this machine; memory and processes are the limit.
    sandboxes_at_once=max(64, 16 * (os.cpu_count() or 1)),
    functions=True,  # every supervisor is warm
    nodes_max=NODES_MAX,
    groups=True,
    ray=True,
)


class LocalProvider:
    contract = CONTRACT

    def __init__(
        self,
        home: Path,
        *,
        store_id: str,
        notify: Notify,
    ) -> None:
        self._layout = LocalLayout(home)
        self._store_id = store_id
        self._notify = notify
        self._supervisors = Supervisors(self._layout, notify)
        self._runs = JournalRuns(self._layout.home, "local")
        self._gpus = GpuClaims(self._layout, self._is_live)
        self._tier = os.environ.get("FLEETCTL_LOCAL_TIER", "auto")
        self._starting: Counter[str] = Counter()  # uid -> starts under way
        self._full_until_s = 0.0  # monotonic
        self._removals: dict[str, asyncio.Future[None]] = {}  # uid -> of its scratch space

    async def start(self, request: RunRequest) -> str:
        if self._tier not in TIERS:
            raise Refused(
                f"FLEETCTL_LOCAL_TIER is `{self._tier}`; it must be one of {', '.join(TIERS)}",
                hint="unset it to use the best tier that this machine has",
            )
        if request.secret_refs:
            raise Refused(
                f"provider `local` keeps no secrets, and `{request.secret_refs[0]}` is asked for",
                hint="use `fromEnv` or `fromFile` in the Secret, or place the job elsewhere",
            )
        # A directory that is being removed must not become this run's work directory.
        if (removal := self._removals.get(request.uid)) is not None:
            await asyncio.wait([removal])
        self._starting[request.uid] += 1
        try:
            return await self._start(request)
        finally:
            self._starting[request.uid] -= 1
            if not self._starting[request.uid]:
                del self._starting[request.uid]

    async def _start(self, request: RunRequest) -> str:
        self._refuse_on_a_full_disk()
        name = supervisor_name(request.uid, request.template_hash)
        for _ in range(START_TRIES):
            if (begun := self._runs.begun(request.uid, request.run)) is not None:
                _must_be_the_same(request, begun.mark)
                self._notify(request.run)  # it may have ended while no link was open
                return begun.supervisor or f"{name}/"
            try:
                return await self._order(name, request)
            except SupervisorGone:
                continue
        raise Unavailable(f"the supervisor of {request.resource} keeps ending", retry_after_s=5.0)

    def _refuse_on_a_full_disk(self) -> None:
        """Raises Unavailable: a run that begins now would fail for lack of disk space. A start that
        failed so has needed more than is held to be enough here, so the next one waits a while.
        """
        home = self._layout.home
        there = next(it for it in (home, *home.parents) if it.exists())
        disk = os.statvfs(there)
        wait_s = self._full_until_s - time.monotonic()
        if disk.f_bavail * disk.f_frsize < ROOM_BYTES_MIN or wait_s > 0:
            raise Unavailable(
                f"the disk that holds `{self._layout.home}` is full; nothing is started until there"
                " is room",
                reason="Crowded",
                retry_after_s=max(wait_s, ROOM_LOOK_S),
            )

    async def observe(self, runs: Sequence[RunRef]) -> Sequence[Observation]:
        seen = [await self._observe(ref) for ref in runs]
        # An end counts once what is kept of it is durable; many at once cost the disk little more.
        ended = [it for it in zip(runs, seen, strict=True) if isinstance(it[1], Ended)]
        await asyncio.gather(*(self._sync_outputs(ref) for ref, _ in ended))
        return [one for one in seen if one is not None]

    async def _sync_outputs(self, ref: RunRef) -> None:
        runs = self._runs.directory(ref.uid or uid_of(ref.handle))
        if has_outputs(runs, ref.run):
            await asyncio.to_thread(sync_pack, runs, ref.run)

    async def stop(self, ref: RunRef, *, grace_s: float) -> None:
        name = (ref.handle or self._handle(ref.uid, ref.run)).partition("/")[0]
        link = await self._supervisors.reach(name) if name else None
        if link is not None:
            order = {"op": "stop", "owner": self._store_id, "grace_s": grace_s}
            link.send({**order, "run": ref.run, "sandbox": ref.sandbox})

    async def owned(self) -> Sequence[Owned]:
        found: list[Owned] = []
        for name in self._supervisors.list_perhaps_living():
            link = await self._supervisors.reach(name)
            if link is None:
                continue
            try:
                listing = await link.listing()
            except SupervisorGone:
                continue
            found += [
                Owned(one.sandbox, link.token, one.created_at_s)
                for one in listing
                if one.owner == self._store_id
            ]
        return found

    async def logs(
        self,
        ref: RunRef,
        *,
        offset: int = 0,
        follow: bool = False,
    ) -> AsyncIterator[LogChunk]:
        uid = ref.uid or uid_of(ref.handle)
        reader = RunLogReader(self._runs.directory(uid), ref.run)

        async def ended() -> bool:
            whole = replace(ref, uid=uid, journal_offset=AT_END)
            return isinstance(await self._observe(whole), Gone | Ended)

        async for data, at, eof in reader.tail(offset, ended, follow=follow):
            yield LogChunk(data, at, eof=eof)

    async def ensure_volume(self, name: str) -> None:
        make_private(self._layout.volume(name))

    async def remove_volume(self, name: str) -> None:
        await asyncio.to_thread(local_volumes.delete_volume, self._layout, name)

    async def ensure_function(self, asset: FunctionAsset) -> None:
        """Does no work: the supervisor of each job that calls the function is its container."""

    async def remove_function(self, name: str) -> None:
        """Does no work: supervisors go with their jobs."""

    async def remove_scratch(self, uid: str, *, keep_logs: bool) -> None:
        names = (
            sorted(os.listdir(self._layout.supervisors))
            if self._layout.supervisors.exists()
            else []
        )
        for name in names:
            if uid_of(name) == uid:
                link = await self._supervisors.reach(name)
                if link is not None:
                    link.send({"op": "leave"})
        if self._starting[uid]:
            raise Unavailable(f"something of `{uid}` starts", retry_after_s=1.0)
        removing = asyncio.to_thread(local_volumes.remove_scratch, self._layout, uid, keep_logs)
        removal = self._removals[uid] = asyncio.ensure_future(removing)
        removal.add_done_callback(partial(self._removed, uid))
        await asyncio.shield(removal)  # the thread goes on, whoever gives up waiting

    def _removed(self, uid: str, removal: asyncio.Future[None]) -> None:
        if self._removals.get(uid) is removal:
            del self._removals[uid]
        if not removal.cancelled():
            # a waiting caller got the error; without a caller, the removal is repeated
            removal.exception()

    def revision(self, uid: str, template: Template, template_hash: str) -> str:
        return local_source.snapshot_revision(
            self._layout.supervisor(supervisor_name(uid, template_hash))
        )

    def usd_per_s(self, template: Template) -> float | None:
        return 0.0  # a machine of one's own sends no bill

    async def foresee(self, template: Template, account: Account) -> AsyncIterator[Finding]:
        del account  # this machine has no account
        async for it in local_preflight.find_obstacles(template, self._layout.home):
            yield it

    def lacks(self, template: Template) -> str:
        wanted = template.resources.gpu
        if wanted is not None and not gpu_claims.may_have_gpu():
            return "this machine has no GPU"
        nodes = nodes_of(template).min
        memory = template.sandbox_resources.memory
        there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if memory is not None and nodes > 1 and nodes * memory > there:
            each = f"{nodes} nodes of {size_text(memory)}"
            return f"this machine has {size_text(there)} of memory, too little for {each}"
        return ""

    async def close(self) -> None:
        self._supervisors.close()

    async def _order(self, name: str, request: RunRequest) -> str:
        """Hands the order to its supervisor. Raises Refused, Unavailable or SupervisorGone."""
        link = await self._supervisors.ensure(
            name, lambda: supervisor_messages.prepare_run(self._layout, request, tier=self._tier)
        )
        if request.groups is not None:
            await self._gpus.wait_for_all(request.uid, request.groups)
        nodes, devices = await self._devices(request)
        # Before it starts: it may have ended, and been observed, when the answer is read here.
        self._supervisors.watch(name, request.run)
        try:
            files = supervisor_messages.show_inputs(self._layout, request)
            answer = await link.start(start_message(request, devices, nodes, files))
        except SupervisorGone:
            self._supervisors.forget(name, request.run)
            raise
        if "ok" not in answer:
            self._supervisors.forget(name, request.run)
            raise Unavailable(answer["message"], reason=answer["reason"])
        if "adopted" not in answer:
            return link.token
        self._notify(request.run)  # as for a run that has begun
        # An adopted run may have begun under an earlier supervisor, which its journal names.
        return self._handle(request.uid, request.run)

    async def _devices(self, request: RunRequest) -> tuple[int, dict[int, str]]:
        """Returns (the number of nodes that the attempt gets, the devices for all nodes). Takes the
        first sort of GPU that is free; elastic nodes get as many nodes as the devices allow.
        """
        gpu = request.template.resources.gpu
        most = min(request.nodes.max, NODES_MAX)
        refused: Unavailable | None = None
        for wanted in gpu.choices if gpu is not None else ():
            for count in range(most, request.nodes.min - 1, -1):
                try:
                    whole = wanted.model_copy(update={"count": wanted.count * count})
                    return count, await self._gpus.take(request.run, request.uid, whole)
                except Unavailable as error:
                    refused = refused or error
        if refused is not None:
            raise await self._of_nodes(request, refused)
        return most, {}

    async def _of_nodes(self, request: RunRequest, refused: Unavailable) -> Unavailable:
        """Returns the same error, counted in nodes where there are several."""
        gpu = request.template.resources.gpu
        least = request.nodes.min
        if least == 1 or gpu is None:
            return refused
        free = await self._gpus.free(gpu)
        had = free // gpu.count
        message = f"{had} of {least} nodes: {refused}"
        reason = "NoCapacity" if had else refused.reason
        return Unavailable(message, reason=reason, retry_after_s=refused.retry_after_s)

    async def _observe(self, ref: RunRef) -> Observation | None:
        uid = ref.uid or uid_of(ref.handle)
        seen = await self._runs.look(uid, ref.run, ref.journal_offset)
        if seen is None:
            return Gone(ref.run, time.time())

        handle = ref.handle or seen.supervisor or self._handle(uid, ref.run)
        if not handle:
            if self._runs.is_just_beginning(uid, ref.run):
                return None
            return Gone(ref.run, time.time())

        name, _, token = handle.partition("/")
        if seen.ending is not None and not seen.ending.sandbox_open:
            self._supervisors.forget(name, ref.run)
            ended = describe_run(ref, seen, handle, sandbox_open=False)
            return self._explain_end(uid, seen, ended)

        # More of its journal is a reason to look again, whatever became of its supervisor.
        gone = not seen.more and await self._supervisors.is_gone(name, token)
        if seen.ending is None and gone:
            # Its end may have been written between the two looks.
            seen = await self._runs.look(uid, ref.run, ref.journal_offset) or seen
            if seen.ending is None and not seen.tells:
                return Gone(ref.run, time.time())
            seen = replace(seen, more=seen.ending is None)  # earlier reports count, too

        self._supervisors.watch(name, ref.run)
        observed = describe_run(ref, seen, handle, sandbox_open=not gone)
        return self._explain_end(uid, seen, observed)

    def _explain_end(
        self,
        uid: str,
        journal: RunJournal,
        seen: Observation,
    ) -> Observation:
        node = journal.ending.node if journal.ending is not None else 0
        if journal.ending is not None and journal.ending.reason == DISK_FULL:
            self._full_until_s = time.monotonic() + FULL_S
        return with_last_words(seen, self._runs.directory(uid), node=node)

    def _handle(self, uid: str, run: str) -> str:
        """Returns the handle that a run's supervisor wrote down; "" without a handle."""
        begun = self._runs.begun(uid, run)
        if begun is not None:
            return begun.supervisor
        return ""

    async def _is_live(self, uid: str, run: str) -> bool:
        seen = await self._observe(
            RunRef(
                run,
                run,
                "",
                AT_END,
                uid,
            )
        )
        return not isinstance(seen, Gone) and not (
            isinstance(seen, Ended) and not seen.sandbox_open
        )


def _must_be_the_same(request: RunRequest, mark: str) -> None:
    """Raises Unavailable, BEGUN_AS_ANOTHER, if other work began under the name. mark: of the work
    that began under this name; "" where its journal has no mark.
    """
    wanted = mark_of(request)
    if mark and wanted and mark != wanted:
        raise Unavailable(
            "other work began under its name, after the backup that the store was restored from",
            reason=BEGUN_AS_ANOTHER,
        )


_: type[Backend] = LocalProvider
