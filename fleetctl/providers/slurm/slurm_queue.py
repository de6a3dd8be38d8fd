"""The queue of a cluster: one `squeue` for all that ask, `sbatch` for a job, `scancel` for many.

Made by the provider and by commands of users, on the line to the cluster's login. Reasons of the
scheduler are put into words that people know.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.providers.machines.agent_line import AgentLine
from fleetctl.providers.remote.connection.token_bucket import TokenBucket

LOOK_S = 1.0  # between two `squeue`, however many jobs are waited for
COMMAND_S = 30.0
SUBMITS_PER_S, SUBMITS_BURST = 3.0, 6.0
CANCEL_WAIT_S = 0.3  # in which ends are gathered into one `scancel`
WAITING = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT")
ACTIVE = ("RUNNING", "SUSPENDED", "COMPLETING", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING")
_REASONS = {
    "Resources": "waits for free nodes; smaller `resources` may start sooner",
    "Priority": "others are before it in the queue",
    "None": "the scheduler has not looked at it yet",
    "Dependency": "waits for another job",
    "JobHeldUser": "it is held; `scontrol release {job}` lets it go",
    "JobHeldAdmin": "an administrator holds it",
    "BeginTime": "its earliest start is not reached",
    "PartitionDown": "its partition is down",
    "PartitionNodeLimit": "it asks for more than a node of its partition has",
    "PartitionTimeLimit": "it asks for more time than its partition gives; set a `timeoutSeconds`",
    "ReqNodeNotAvail": "a node that it needs is reserved or down",
    "Reservation": "waits for its reservation",
    "QOSMaxJobsPerUserLimit": "your quality of service (QOS) runs no more jobs of yours now",
    "QOSMaxCpuPerUserLimit": "your quality of service (QOS) gives you no more cores now",
    "QOSMaxGRESPerUser": "your quality of service (QOS) gives you no more GPUs now",
    "QOSGrpCpuLimit": "all cores of your quality of service (QOS) are taken",
    "AssocGrpCpuLimit": "all cores of your account are taken",
    "AssocMaxJobsLimit": "your account runs no more jobs now",
    "AssocGrpGRES": "all GPUs of your account are taken",
}
_WRONG = ("Invalid", "invalid", "Requested node configuration", "not available", "More processors")


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A job as the scheduler has it. name: the box that it was made for."""

    number: str
    state: str
    reason: str
    node: str
    name: str

    @property
    def waits(self) -> bool:
        return self.state in WAITING

    @property
    def active(self) -> bool:
        return self.waits or self.state in ACTIVE

    def explain(self) -> str:
        """Returns why it does not run."""
        known = next((text for key, text in _REASONS.items() if self.reason.startswith(key)), "")
        text = known.format(job=self.number) if known else self.reason
        return f"job {self.number} is {self.state.lower()}: {text} ({self.reason})"


class SlurmQueue:
    def __init__(self, line: AgentLine) -> None:
        self._line = line
        self._bucket = TokenBucket(SUBMITS_PER_S, SUBMITS_BURST)
        self._looking: asyncio.Task[dict[str, QueuedJob]] | None = None
        self._looked_at_s = -LOOK_S
        self._cancels: set[str] = set()
        self._cancelling: asyncio.Task[None] | None = None
        self.commands = 0

    async def jobs(self) -> dict[str, QueuedJob]:
        """Returns this user's jobs by name, as of a look that began after this call or less than
        LOOK_S before. Raises Unavailable.
        """
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._look())
        return await asyncio.shield(self._looking)

    async def _look(self) -> dict[str, QueuedJob]:
        wait_s = self._looked_at_s + LOOK_S - time.monotonic()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        self._looked_at_s = time.monotonic()
        words = ["squeue", "--noheader", "--all", "--states=all", "--me", "-o", "%i|%T|%r|%N|%j"]
        out = (await self.run(words))["out"]
        found = {}
        for line in out.splitlines():
            parts = line.split("|")
            if len(parts) == 5:
                found[parts[4]] = QueuedJob(*parts)
        return found

    async def submit(self, options: Sequence[str], script: str) -> str:
        """Returns the job's number. Raises Refused for what the scheduler can never run."""
        await self._bucket.take()
        reply = await self.run(["sbatch", "--parsable", *options], given=script, check=False)
        if reply["exit"] == 0:
            return str(reply["out"]).strip().partition(";")[0]
        said = reply["said"].splitlines()[-1] if reply["said"] else f"exit code {reply['exit']}"
        if any(word in said for word in _WRONG):
            raise Refused(
                f"the job is refused by Slurm: {said}",
                hint="compare `resources` and the Provider object with `sinfo -o '%P %c %m %G %l'`",
            )
        raise Unavailable(
            f"no job can be sent to Slurm now: {said}", reason="Queued", retry_after_s=10.0
        )

    async def cancel(self, number: str) -> None:
        """Asks for the end of a job; many calls are one command."""
        self._cancels.add(number)
        if self._cancelling is None or self._cancelling.done():
            self._cancelling = asyncio.ensure_future(self._cancel_gathered())
        await asyncio.shield(self._cancelling)

    async def _cancel_gathered(self) -> None:
        await asyncio.sleep(CANCEL_WAIT_S)
        numbers = sorted(self._cancels)
        self._cancels.clear()
        await self.run(["scancel", "--quiet", *numbers], check=False)

    async def run(
        self, argv: Sequence[str], *, given: str = "", check: bool = True
    ) -> dict[str, Any]:
        """Runs a program of Slurm's on the login. Raises Unavailable when it fails."""
        self.commands += 1
        fields = {"argv": list(argv), "input": given, "deadline_s": COMMAND_S}
        reply = await self._line.call("run", fields, deadline_s=2 * COMMAND_S)
        if check and reply["exit"]:
            raise Unavailable(
                f"`{argv[0]}` fails at the cluster's login: {reply['said'] or reply['exit']}",
                reason="Unreachable",
                retry_after_s=5.0,
                hint=f"try it there by hand: {argv[0]}",
            )
        return reply
