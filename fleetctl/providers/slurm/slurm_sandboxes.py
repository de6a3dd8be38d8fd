"""The sandboxes of our store in a cluster, by handle `JOB/BOX@ID`: begun, followed, ended, listed.

Made by slurm_provider.py; the shared part (providers/remote) calls its verbs. A run is followed by
its files, from the login. That its supervisor is gone is believed once the scheduler reports that
the job is over: a shared directory need not show the locks of other machines. A job whose end was
confirmed is watched a little longer: a scheduler that is killed forgets its last seconds.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.common.event_loop import cancel_tasks
from fleetctl.guest.nodes.gang import strip_node
from fleetctl.guest.ship.library import order_input
from fleetctl.providers.contract.base import Owned
from fleetctl.providers.machines.agent_link import AgentChannel, SupervisorLost, follow_run
from fleetctl.providers.remote.gangs.joined_sandboxes import (
    NodeFacts,
    NodeSandboxes,
    facts_in,
    sandbox_in,
)
from fleetctl.providers.remote.runs.follower import SandboxOver
from fleetctl.providers.remote.sandboxes import sandbox_names
from fleetctl.providers.remote.sandboxes.sandbox_protocol import Cause, Fate, RunWork, StreamOffsets
from fleetctl.providers.slurm.slurm_login import QueuedJob, SlurmLogin
from fleetctl.specs.values.hints import NO_TEXT, HintedText

log = logging.getLogger("fleetctl.providers")

# Between an end and the look that shows that the scheduler has it on its disk: slurmctld writes
# changes within 5 s, the rest is for a slow disk. Until then a killed one takes the job up again.
SAVED_S = 30.0
NO_JOB = "0"  # in a handle, where the scheduler has forgotten the number
WATCH_S = 10.0  # between two looks at jobs that ended lately
# What the scheduler's last word about a job means; others, and none, mean a lost machine.
_FATES = {
    "TIMEOUT": (Cause.TIMEOUT, "Slurm ended job {job} at its time limit"),
    "DEADLINE": (Cause.TIMEOUT, "Slurm ended job {job} at its deadline"),
    "NODE_FAIL": (Cause.LOST, "the node of job {job} failed"),
    "BOOT_FAIL": (Cause.LOST, "the node of job {job} did not start"),
    "PREEMPTED": (Cause.PREEMPTED, "Slurm gave the node of job {job} to another job"),
    "OUT_OF_MEMORY": (Cause.OUT_OF_MEMORY, "job {job} used more memory than it had asked for"),
    "CANCELLED": (Cause.TERMINATED, "job {job} was cancelled"),
}


def split_handle(handle: str) -> tuple[str, str]:
    """Returns (the number of the job, the box)."""
    job, _, box = handle.partition("/")
    return job, box


def job_name(box: str) -> str:
    """Returns the name by which the scheduler has the job of a box."""
    return f"fleetctl-{box.rpartition('@')[2]}"


def _fate_of(number: str, state: str) -> Fate:
    cause, text = _FATES.get(state, (Cause.LOST, "job {job} ended as {state}"))
    own = cause is Cause.OUT_OF_MEMORY
    return Fate(cause, text.format(job=number, state=state), own=own)


class EndedJobs:
    """The jobs that ended lately. One that the scheduler takes for active again, without processes,
    is cancelled: it would keep its allocation until its time limit. end: ends a sandbox, also one
    whose end an earlier controller has asked for and not seen.
    """

    def __init__(
        self, login: SlurmLogin, store_id: str, end: Callable[[str], Awaitable[None]]
    ) -> None:
        self._login = login
        self._store_id = store_id
        self._end = end
        self._ending: set[str] = set()
        self._ended_at_s: dict[str, float] = {}  # by the job's name
        self._watching: asyncio.Task[None] | None = None
        self._recalled = False

    @property
    def busy(self) -> bool:
        return bool(self._ended_at_s or self._ending)

    def note(self, name: str) -> None:
        """Notes that the end of a job is confirmed."""
        self._ended_at_s[name] = time.monotonic()
        self.watch()

    def watch(self) -> None:
        """Begins to watch, if there may be something to watch: jobs that ended under an earlier
        controller, at the first call, or under this one.
        """
        if self._watching is None or (self._watching.done() and self.busy):
            self._watching = asyncio.ensure_future(self._watch())

    async def close(self) -> None:
        if self._watching is not None:
            await cancel_tasks([self._watching])

    async def _watch(self) -> None:
        while self.busy or not self._recalled:
            try:
                await self._recall()
                for handle in list(self._ending):
                    await self._end(handle)
                    self._ending.discard(handle)
                if self.busy:
                    looked_at_s = time.monotonic()
                    await self._cancel_returned(await self._login.queue.jobs(), looked_at_s)
            except (Refused, Unavailable) as error:  # while it is unreachable, no job is confirmed
                log.info("ended jobs not looked at", extra={"error": str(error)})
            await asyncio.sleep(WATCH_S)

    async def _recall(self) -> None:
        if self._recalled:
            return
        reply = await self._login.line.call("all")
        jobs = await self._login.queue.jobs()
        self._recalled = True
        for box in reply["ended"]:
            if sandbox_names.is_ours(box["tags"], self._store_id):
                self._ended_at_s.setdefault(job_name(box["box"]), time.monotonic())
        for box in reply["boxes"]:
            if box["ending"] and sandbox_names.is_ours(box["tags"], self._store_id):
                job = jobs.get(job_name(box["box"]))
                self._ending.add(f"{job.number if job is not None else NO_JOB}/{box['box']}")

    async def _cancel_returned(self, jobs: Mapping[str, QueuedJob], looked_at_s: float) -> None:
        returned: list[str] = []
        for name, ended_at_s in list(self._ended_at_s.items()):
            job = jobs.get(name)
            if job is not None and job.active:
                log.warning("ended job is active again", extra={"job": job.number})
                returned.append(job.number)
                self._ended_at_s[name] = time.monotonic()
            elif looked_at_s - ended_at_s > SAVED_S:
                del self._ended_at_s[name]
        await asyncio.gather(*map(self._login.queue.cancel, returned))


class SlurmSandboxes:
    def __init__(self, login: SlurmLogin, store_id: str) -> None:
        self._login = login
        self._store_id = store_id
        self.ended_jobs = EndedJobs(login, store_id, self.end)
        self._ended: set[str] = set()
        self._unread: dict[str, set[str]] = {}  # handle -> runs whose journal has more
        self._lost: set[str] = set()

    async def stream(
        self,
        handle: str,
        run: str,
        work: RunWork | None,
        at: StreamOffsets,
    ) -> AsyncGenerator[bytes, None]:
        _, box = split_handle(handle)
        line = self._login.line
        self.ended_jobs.watch()
        # Until its journal is read, no state of its job is the end of the run.
        self._unread.setdefault(handle, set()).add(run)
        if work is not None:
            order = {
                "verb": "attach",
                "run": run,
                "order": order_input(work.order, posix=False).decode(),
                "secrets": dict(work.secrets),
            }
            posted = await line.call("post", {"box": box, "request": order, "awaits": run})
            if not posted["ok"]:
                self._unread[handle].discard(run)
                raise SandboxOver(handle)
        async with line.asked():
            link = await line.link()
        try:
            async with aclosing(follow_run(link, box, run, None, at)) as frames:
                async for data in frames:
                    if b'{"e":"eof"' in data or b'{"e":"unbegun"' in data:
                        self._unread.get(handle, set()).discard(run)
                    yield data
        except SupervisorLost:
            job = await self._job(handle)
            left = (await line.call("look", {"box": box}))["left"]
            if job is not None and job.active and not left:
                raise Unavailable(
                    f"job {job.number} runs, and its files show nothing new"
                ) from None
            self._lost.add(handle)
            self._unread.get(handle, set()).discard(run)
            raise
        except SandboxOver:
            self._unread.get(handle, set()).discard(run)
            raise

    async def fate(self, handle: str) -> Fate | None:
        if handle in self._ended:
            return Fate(Cause.STOPPED)
        number, box = split_handle(handle)
        job = await self._job(handle)
        if self._unread.get(handle) and handle not in self._lost:
            return None  # its journal is still to be read
        if job is not None and job.active:
            look = await self._login.line.call("look", {"box": box})
            if look["left"] and facts_in(look["tags"], "").count == 1:
                self.ended_jobs.note(job_name(box))  # Slurm may keep it for a running one
            if look["left"] or handle in self._lost:
                return Fate(Cause.LOST, f"a node of job {number} ended without an end record")
            return None
        if job is not None:
            return _fate_of(number, job.state)
        if (await self._login.line.call("look", {"box": box}))["state"] == "gone":
            return Fate(Cause.UNKNOWN)
        recorded = await self._login.queue.recorded_state(number, job_name(box))
        if recorded:
            return _fate_of(number, recorded)
        return Fate(Cause.LOST, f"job {number} left the scheduler's memory without an end record")

    async def end(self, handle: str) -> None:
        number, box = split_handle(handle)
        line = self._login.line
        job = await self._job(handle)
        if job is not None and job.active:
            await line.call("drop", {"box": box, "kill": True})
            await self._login.queue.cancel(number)
            job = await self._job(handle)
            if job is not None and job.active:
                raise Unavailable(f"job {number} is {job.state.lower()} still", retry_after_s=1.0)
        await line.call("drop", {"box": box, "kill": False})
        self.ended_jobs.note(job_name(box))
        self._ended.add(handle)
        self._lost.discard(handle)
        self._unread.pop(handle, None)

    async def ask_stop(self, handle: str, run: str, grace_s: float) -> None:
        _, box = split_handle(handle)
        request = {"verb": "stop", "run": run, "grace_s": grace_s}
        await self._login.line.call("post", {"box": box, "request": request})

    async def find(self, run: str) -> str | None:
        box = self.name_of(run)
        reply = await self._login.line.call("look", {"box": box})
        if not sandbox_names.is_of(reply["tags"], self._store_id, strip_node(run)):
            return None
        whole = f"{box}@{reply['box_id']}"
        job = (await self._login.queue.jobs()).get(job_name(whole))
        return f"{job.number}/{whole}" if job is not None else None

    async def line(self, handle: str, run: str) -> AgentChannel:
        """No line reaches a node."""
        raise Refused(
            f"run `{run}` cannot ask endpoints from job {split_handle(handle)[0]}",
            hint="place it on another provider, or use `reach: Direct` in the Endpoint",
        )

    def name_of(self, run: str) -> str:
        """A cluster may have the work of several stores."""
        return sandbox_names.sandbox_name(f"{self._store_id}-{run}")

    async def is_ours(self, handle: str) -> bool:
        reply = await self._login.line.call("look", {"box": split_handle(handle)[1]})
        return sandbox_names.is_ours(reply["tags"], self._store_id)

    async def owned(self) -> list[Owned]:
        """Returns every sandbox of our store whose job waits or runs."""
        self.ended_jobs.watch()
        boxes = (await self._login.line.call("all"))["boxes"]
        jobs = await self._login.queue.jobs()
        found = []
        for box in boxes:
            job = jobs.get(job_name(box["box"]))
            ours = sandbox_names.is_ours(box["tags"], self._store_id)
            if ours and job is not None and job.active:
                since_s = sandbox_names.made_at_s(box["tags"])
                handle = f"{job.number}/{box['box']}"
                found.append(Owned(sandbox_in(box["tags"]), handle, since_s))
        return found

    async def node_facts(self, handle: str) -> NodeFacts:
        reply = await self._login.line.call("look", {"box": split_handle(handle)[1]})
        return facts_in(reply["tags"], reply["address"])

    async def halt(self, handle: str) -> HintedText:
        """Returns why a job that has its nodes does not work; NO_TEXT while it may."""
        job = (await self._login.queue.recent()).get(job_name(split_handle(handle)[1]))
        return job.halt() if job is not None else NO_TEXT

    def place_of(self, handle: str) -> str:
        """Returns the directory of a box, which the login and the nodes share."""
        return f"{self._login.root}/boxes/{split_handle(handle)[1].partition('@')[0]}"

    async def _job(self, handle: str) -> QueuedJob | None:
        """Returns the job as the scheduler has it now; None when it has forgotten it."""
        return (await self._login.queue.jobs()).get(job_name(split_handle(handle)[1]))


_: type[NodeSandboxes] = SlurmSandboxes
