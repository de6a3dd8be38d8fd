"""The queue of a cluster: one `squeue` for all that ask, `sbatch` for a job, `scancel` for many.

Made by the provider and by commands of users, on the line to the cluster's login.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.providers.machines.agent_line import AgentLine
from fleetctl.providers.remote.connection.token_bucket import TokenBucket
from fleetctl.providers.slurm.slurm_reasons import HALTED, explain_reason, explain_state
from fleetctl.specs.values.hints import NO_TEXT, HintedText

log = logging.getLogger("fleetctl.providers")

LOOK_S = 1.0  # between two `squeue`, however many jobs are waited for
RECENT_S = 15.0
COMMAND_S = 30.0
SUBMITS_PER_S, SUBMITS_BURST = 3.0, 6.0
CANCEL_WAIT_S = 0.3  # in which ends are gathered into one `scancel`
WAITING = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT")
ACTIVE = ("RUNNING", "SUSPENDED", "COMPLETING", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING")
# With seconds since the epoch: the login's clock and ours may be in different zones.
_LOOK = ("env", "SLURM_TIME_FORMAT=%s", "squeue", "--noheader", "--all", "--states=all", "--me")
_FIELDS = "%i|%T|%r|%N|%S|%j"
_WRONG = ("Invalid", "invalid", "Requested node configuration", "not available", "More processors")


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A job as the scheduler has it. starts: seconds since the epoch when it began, or is expected
    to; "N/A" while the scheduler has no estimate. name: the box that it was made for.
    """

    number: str
    state: str
    reason: str
    node: str
    starts: str
    name: str

    @property
    def waits(self) -> bool:
        return self.state in WAITING

    @property
    def active(self) -> bool:
        return self.waits or self.state in ACTIVE

    def halt(self) -> HintedText:
        """Returns that it has its nodes and was made to pause; NO_TEXT while it may work."""
        if self.state not in HALTED:
            return NO_TEXT
        hint = HALTED[self.state].format(job=self.number)
        return HintedText(f"job {self.number} {explain_state(self.state)}", hint)

    def explain(self) -> str:
        """Returns why it does not run, and when it is expected to."""
        about = f"job {self.number} {explain_state(self.state)}"
        known = explain_reason(self.reason, self.number)
        about += f": {known} ({self.reason})" if known else f": {self.reason}"
        if self.starts.isdigit():
            at = time.strftime("%Y-%m-%d %H:%M", time.gmtime(int(self.starts)))
            about += f"; Slurm expects it to start at {at} UTC"
        return about


class SlurmQueue:
    def __init__(self, line: AgentLine) -> None:
        self._line = line
        self._bucket = TokenBucket(SUBMITS_PER_S, SUBMITS_BURST)
        self._looking: asyncio.Task[dict[str, QueuedJob]] | None = None
        self._looked_at_s = -LOOK_S
        self._cancels: set[str] = set()
        self._cancelling: asyncio.Task[None] | None = None
        self._last: dict[str, QueuedJob] = {}
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
        out = (await self.run([*_LOOK, "-o", _FIELDS]))["out"]
        found = {}
        for line in out.splitlines():
            parts = line.split("|")
            if len(parts) == _FIELDS.count("|") + 1:
                found[parts[-1]] = QueuedJob(*parts)
        self._last = found
        return found

    async def recent(self) -> dict[str, QueuedJob]:
        """Returns this user's jobs by name as of a look that is at most RECENT_S old, for messages;
        those of the last one while the login cannot be asked.
        """
        if time.monotonic() - self._looked_at_s > RECENT_S:
            try:
                return await self.jobs()
            except Unavailable as error:  # whoever needs the truth asks for it, and shows the error
                log.info("queue not read", extra={"error": str(error)})
        return self._last

    async def recorded_state(self, number: str, name: str) -> str:
        """Returns the last state of a job that left the scheduler's memory; "" where the cluster
        has no accounting, or no record of it.
        """
        words = ["sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={number}"]
        reply = await self.run([*words, "--format=JobName%64,State"], check=False)
        for line in str(reply["out"]).splitlines():
            found, _, state = line.partition("|")
            if found == name:
                return state.partition(" ")[0]  # `CANCELLED by 1000`
        return ""

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
