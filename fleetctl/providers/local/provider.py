"""Provider `local`: the four verbs for runs, and the assets, on this machine.

Built by wiring; called by the engine. It keeps no truth of its own: journals, locks and
directories below $FLEETCTL_HOME/local do, so that the next controller finds everything.
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
from fleetctl.controllers.model import Ended, Gone, Observation
from fleetctl.guest.journal.ending import size_text
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.base import (
    BEGUN_AS_ANOTHER,
    Backend,
    Foreseen,
    FunctionAsset,
    LogChunk,
    Notify,
    Owned,
    RunRef,
    RunRequest,
)
from fleetctl.providers.contract.terms import Contract
from fleetctl.providers.local import foreseen
from fleetctl.providers.local.assets import sources, volumes
from fleetctl.providers.local.paths import Layout, supervisor_name, uid_of
from fleetctl.providers.local.runs import gpus, preparing
from fleetctl.providers.local.runs.gpus import Gpus
from fleetctl.providers.local.runs.link import SupervisorGone
from fleetctl.providers.local.runs.supervisor_messages import mark_of, start_message
from fleetctl.providers.local.runs.supervisors import Supervisors
from fleetctl.providers.paths import make_private
from fleetctl.providers.rundir.journal import Journal
from fleetctl.providers.rundir.logs import LogReader
from fleetctl.providers.rundir.reading import AT_END, Runs, describe, with_last_words
from fleetctl.specs.blocks.nodes import nodes_of
from fleetctl.specs.blocks.template import Template

TIERS = ("auto", "namespaces", "process")
NODES_MAX = 64  # on one machine: more is a slip of the pen
START_TRIES = 3  # a supervisor may leave just as an order arrives

CONTRACT = Contract(
    visibility_bound_s=0.0,
    list_shows_finished=False,
    strong_get=True,
    name_scope="store",
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
    ray=True,
)


class LocalProvider:
    contract = CONTRACT

    def __init__(self, home: Path, *, store_id: str, notify: Notify) -> None:
        self._layout = Layout(home)
        self._store_id = store_id
        self._supervisors = Supervisors(self._layout, notify)
        self._runs = Runs(self._layout.home, "local")
        self._gpus = Gpus(self._layout, self._is_live)
        self._tier = os.environ.get("FLEETCTL_LOCAL_TIER", "auto")
        self._starting: Counter[str] = Counter()  # uid -> starts under way
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
        # What is being taken away is not to be what this run works in.
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
        name = supervisor_name(request.uid, request.template_hash)
        for _ in range(START_TRIES):
            if (begun := self._runs.begun(request.uid, request.run)) is not None:
                _must_be_the_same(request, begun.mark)
                return begun.supervisor or f"{name}/"
            try:
                return await self._order(name, request)
            except SupervisorGone:
                continue
        raise Unavailable(f"the supervisor of {request.resource} keeps ending", retry_after_s=5.0)

    async def observe(self, runs: Sequence[RunRef]) -> Sequence[Observation]:
        seen = [await self._observe(ref) for ref in runs]
        return [one for one in seen if one is not None]

    async def stop(self, ref: RunRef, *, grace_s: float) -> None:
        name = (ref.handle or self._handle(ref.uid, ref.run)).partition("/")[0]
        link = await self._supervisors.reach(name) if name else None
        if link is not None:
            order = {"op": "stop", "owner": self._store_id, "grace_s": grace_s}
            link.send({**order, "run": ref.run, "sandbox": ref.sandbox})

    async def owned(self) -> Sequence[Owned]:
        found: list[Owned] = []
        for name in self._supervisors.perhaps_living():
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
        self, ref: RunRef, *, offset: int = 0, follow: bool = False
    ) -> AsyncIterator[LogChunk]:
        uid = ref.uid or uid_of(ref.handle)
        reader = LogReader(self._runs.directory(uid), ref.run)

        async def ended() -> bool:
            whole = replace(ref, uid=uid, journal_offset=AT_END)
            return isinstance(await self._observe(whole), Gone | Ended)

        async for data, at, eof in reader.tail(offset, ended, follow=follow):
            yield LogChunk(data, at, eof=eof)

    async def ensure_volume(self, name: str) -> None:
        make_private(self._layout.volume(name))

    async def remove_volume(self, name: str) -> None:
        await asyncio.to_thread(volumes.remove, self._layout, name)

    async def ensure_function(self, asset: FunctionAsset) -> None:
        """Nothing is to be made: the supervisor of each job that calls it is its container."""

    async def remove_function(self, name: str) -> None:
        """Nothing is to be removed: supervisors go with their jobs."""

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
        removing = asyncio.to_thread(volumes.remove_scratch, self._layout, uid, keep_logs)
        removal = self._removals[uid] = asyncio.ensure_future(removing)
        removal.add_done_callback(partial(self._removed, uid))
        await asyncio.shield(removal)  # the thread goes on, whoever gives up waiting

    def _removed(self, uid: str, removal: asyncio.Future[None]) -> None:
        if self._removals.get(uid) is removal:
            del self._removals[uid]
        if not removal.cancelled():
            removal.exception()  # who waited was told; where nobody did, it is asked for again

    def revision(self, uid: str, template: Template, template_hash: str) -> str:  # noqa: ARG002
        return sources.revision(self._layout.supervisor(supervisor_name(uid, template_hash)))

    def usd_per_s(self, template: Template) -> float | None:  # noqa: ARG002
        return 0.0  # nobody sends a bill for one's own machine

    async def foresee(self, template: Template, account: Account) -> Foreseen | None:
        del account  # this machine has none
        return await foreseen.first(template)

    def lacks(self, template: Template) -> str:
        wanted = template.resources.gpu
        if wanted is not None and not gpus.perhaps_there():
            return "this machine has no GPU"
        nodes, memory = nodes_of(template).min, template.sandbox_resources.memory
        there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if memory is not None and nodes > 1 and nodes * memory > there:
            each = f"{nodes} nodes of {size_text(memory)}"
            return f"this machine has {size_text(there)} of memory, too little for {each}"
        return ""

    async def close(self) -> None:
        self._supervisors.close()

    async def _order(self, name: str, request: RunRequest) -> str:
        """Hand the order to its supervisor. Raises Refused, Unavailable or SupervisorGone."""
        link = await self._supervisors.ensure(
            name, lambda: preparing.prepare(self._layout, request, tier=self._tier)
        )
        nodes, devices = await self._devices(request)
        # Before it starts: it may have ended, and been observed, when the answer is read here.
        self._supervisors.watch(name, request.run)
        try:
            answer = await link.start(start_message(request, devices, nodes))
        except SupervisorGone:
            self._supervisors.forget(name, request.run)
            raise
        if "ok" not in answer:
            self._supervisors.forget(name, request.run)
            raise Unavailable(answer["message"], reason=answer["reason"])
        # What was adopted may have begun under an earlier supervisor, which its journal tells.
        return self._handle(request.uid, request.run) if "adopted" in answer else link.token

    async def _devices(self, request: RunRequest) -> tuple[int, dict[int, str]]:
        """(how many nodes the attempt gets, devices for all of them): of the first sort of GPU that
        is free, and of elastic nodes as many as there are devices for.
        """
        gpu, most = request.template.resources.gpu, min(request.nodes.max, NODES_MAX)
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
        """The same, told in nodes where there are several."""
        gpu, least = request.template.resources.gpu, request.nodes.min
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
            return None if self._runs.just_beginning(uid, ref.run) else Gone(ref.run, time.time())
        name, _, token = handle.partition("/")
        if seen.ending is not None and not seen.ending.sandbox_open:
            self._supervisors.forget(name, ref.run)
            return self._told(uid, seen, describe(ref, seen, handle, sandbox_open=False))
        gone = await self._supervisors.is_gone(name, token)
        if seen.ending is None and gone:
            # Its end may have been written between the two looks.
            seen = await self._runs.look(uid, ref.run, ref.journal_offset) or seen
            if seen.ending is None and not seen.tells:
                return Gone(ref.run, time.time())
            seen = replace(seen, more=seen.ending is None)  # what it told before counts, too
        self._supervisors.watch(name, ref.run)
        return self._told(uid, seen, describe(ref, seen, handle, sandbox_open=not gone))

    def _told(self, uid: str, journal: Journal, seen: Observation) -> Observation:
        node = journal.ending.node if journal.ending is not None else 0
        return with_last_words(seen, self._runs.directory(uid), node=node)

    def _handle(self, uid: str, run: str) -> str:
        """The handle that a run's supervisor wrote down; "" when there is none."""
        begun = self._runs.begun(uid, run)
        return begun.supervisor if begun is not None else ""

    async def _is_live(self, uid: str, run: str) -> bool:
        seen = await self._observe(RunRef(run, run, "", AT_END, uid))
        return not isinstance(seen, Gone) and not (
            isinstance(seen, Ended) and not seen.sandbox_open
        )


def _must_be_the_same(request: RunRequest, mark: str) -> None:
    """mark: of the work that began under this name; empty where its journal does not say."""
    wanted = mark_of(request)
    if mark and wanted and mark != wanted:
        raise Unavailable(
            "other work began under its name, after the backup that the store was restored from",
            reason=BEGUN_AS_ANOTHER,
        )


_: type[Backend] = LocalProvider
