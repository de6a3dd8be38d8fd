"""The login of a cluster: its settings, the line to its agent, its queue with one `squeue` for all
that ask, and the check whether it takes work.

Without a `login` in its settings this machine is the login. The reasons why a job waits are those
of Slurm 22.05; its limits are read by the parts of their names, as there are more than a hundred.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fleetctl.common.errors import FleetctlError, Refused, Unavailable
from fleetctl.common.event_loop import cancel_tasks
from fleetctl.providers.contract.account import Account, AccountNow, CheckResult
from fleetctl.providers.machines.agent_bundle import BOOT, build_bundle
from fleetctl.providers.machines.agent_link import (
    AgentFault,
    AgentLine,
    AgentLink,
    LineBroken,
    open_link,
)
from fleetctl.providers.machines.openssh import (
    OPEN_S,
    SshTarget,
    open_ssh_link,
    sockets_in,
    ssh_command,
)
from fleetctl.providers.remote.service_calls import TokenBucket
from fleetctl.specs.blocks.machines import SlurmSettings
from fleetctl.specs.values.hints import NO_TEXT, HintedText

HERE = "this machine"
NO_CLUSTER_HINT = (
    "declare it: kind: Provider, metadata: {name: slurm},"
    " spec: {slurm: {sharedDir: ~/.fleetctl, partition: gpu}}"
)
# The agent's own boxes are those of the scheduler: no lease of a login ends a job.
_HELLO = {"fleet": "", "lease_s": 0}

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

# A reason is looked for by the beginning of its name, the longest first: some end with details.
_REASONS = {
    "None": "the scheduler has not looked at it yet",
    "Resources": "waits for free nodes; smaller `resources` may start sooner",
    "Priority": "others are before it in the queue",
    "Dependency": "waits for another job",
    "DependencyNeverSatisfied": "the job that it waits for has failed",
    "JobHeldUser": "it is held; `scontrol release {job}` lets it go",
    "JobHeldAdmin": "an administrator holds it; only they can let it go",
    "JobHoldMaxRequeue": "it is held after too many starts; `scontrol release {job}` lets it go",
    "BeginTime": "its earliest start is not reached",
    "DeadLine": "it cannot end before its deadline any more",
    "Licenses": "waits for a license that others use",
    "Reservation": "waits for its reservation to begin",
    "ReservationDeleted": "its reservation was deleted; change `options` of the Provider object",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition takes no jobs now",
    "PartitionNodeLimit": "it asks for more than a node of its partition has",
    "PartitionTimeLimit": "it asks for more time than its partition gives; set a `timeoutSeconds`",
    "PartitionConfig": "its partition does not allow such a job",
    "ReqNodeNotAvail": "a node that it needs is reserved or down",
    "NodeDown": "a node that it needs is down",
    "BadConstraints": "no node has the features that it asks for; see `constraint`",
    "FrontEndDown": "the machine that starts jobs is down",
    "PowerNotAvail": "waits for electric power",
    "PowerReserved": "waits for electric power",
    "SchedDefer": "the scheduler starts it with its next look at the queue",
    "FedJobLock": "another cluster of the federation looks at it",
    "Cleaning": "what an earlier start of it left is being removed",
    "Prolog": "its nodes are being prepared",
    "BlockMaxError": "its nodes failed too often",
    "BlockFreeAction": "its nodes are being made free",
    "BurstBuffer": "its data are being staged",
    "SystemFailure": "Slurm failed to start it",
    "JobLaunchFailure": "its node could not start it",
    "NonZeroExitCode": "it failed",
    "TimeLimit": "it reached its time limit",
    "InactiveLimit": "it was idle for too long",
    "OutOfMemory": "it used more memory than it had asked for",
    "MaxMemPerLimit": "it asks for more memory than a job may have",
    "JobArrayTaskLimit": "as many tasks of its array run as may",
    "InvalidAccount": "its account does not exist; change `account` of the Provider object",
    "AccountNotAllowed": "its partition does not allow its account",
    "AccountingPolicy": "a limit of your account is reached",
    "InvalidQOS": "its quality of service (QOS) does not exist; change `qos`",
    "QOSNotAllowed": "its partition does not allow its quality of service (QOS)",
    "QOSUsageThreshold": "your quality of service (QOS) has used its share",
    "QOSJobLimit": "your quality of service (QOS) runs no more jobs now",
    "QOSResourceLimit": "your quality of service (QOS) gives no more now",
    "QOSTimeLimit": "it asks for more time than your quality of service (QOS) gives",
    "AssociationJobLimit": "your account runs no more jobs now",
    "AssociationResourceLimit": "your account gives no more now",
    "AssociationTimeLimit": "it asks for more time than your account gives",
}
_LIMIT = re.compile(
    r"(?P<owner>QOS|Assoc|)(?P<sort>Grp|Max|Min)"
    r"(?P<thing>Cpu|CPU|Node|Mem|Job|Submit|Wall|GRES|License|Energy|BB|Billing|Unknown)"
    r"(?:ory|s)?(?P<rest>\w*)"
)
_OWNERS = {"QOS": "quality of service (QOS)", "Assoc": "account", "": "account"}
_THINGS = {
    "Cpu": "cores",
    "CPU": "cores",
    "Node": "nodes",
    "Mem": "memory",
    "Job": "jobs",
    "Submit": "waiting jobs",
    "Wall": "time",
    "GRES": "GPUs",
    "License": "licenses",
    "Energy": "energy",
    "BB": "burst buffers",
    "Billing": "billing units",
    "Unknown": "units of a resource",
}
_STATES = {
    "PENDING": "is pending",
    "CONFIGURING": "has its nodes, which start up",
    "REQUEUED": "was put back into the queue",
    "REQUEUE_HOLD": "was put back into the queue and is held",
}
# States of a job that has its nodes and does not work, with the command that lets it go on.
HALTED = {"SUSPENDED": "scontrol resume {job}", "STOPPED": "scancel --signal=CONT {job}"}


def settings_of(account: Account) -> SlurmSettings:
    """Returns the settings of a cluster. Raises Refused for an account without one."""
    if not account.settings.get("sharedDir"):
        raise Refused(f"provider `{account.name}` has no cluster", hint=NO_CLUSTER_HINT)
    return SlurmSettings.model_validate(dict(account.settings))


class SlurmLogin:
    def __init__(self, home: Path, account: AccountNow) -> None:
        self._home = home
        self._account = account

    @property
    def settings(self) -> SlurmSettings:
        return settings_of(self._account())

    @cached_property
    def line(self) -> AgentLine:
        """Returns a connection to the agent on the login node. Raises Refused without a cluster."""
        login = self.settings.login
        return AgentLine(login.name if login is not None else HERE, self._open)

    @cached_property
    def queue(self) -> SlurmQueue:
        return SlurmQueue(self.line)

    @property
    def root(self) -> str:
        """The shared directory, as the login names it; known once there was a line."""
        return str(self.line.facts["root"])

    def command(self, words: list[str], *, terminal: bool) -> list[str]:
        """Returns the command that runs `words` on the login."""
        target = self._target
        if target is None:
            return words
        sockets = sockets_in(self._account().directory(self._home))
        return ssh_command(target, words, sockets=sockets, terminal=terminal)

    @property
    def _target(self) -> SshTarget | None:
        settings = self.settings
        host = settings.login
        if host is None:
            return None
        return SshTarget(
            name=host.name,
            host=host.host,
            user=host.user or "",
            port=host.port or 0,
            identity_file=host.identity_file or "",
            jump=host.jump or "",
            config=settings.config or "",
            python=host.python or "python3",
            directory=settings.shared_dir,
        )

    async def _open(self) -> AgentLink:
        target = self._target
        if target is not None:
            sockets = sockets_in(self._account().directory(self._home))
            return await open_ssh_link(target, sockets=sockets, hello=_HELLO)
        words = ["python3", "-I", "-S", "-c", BOOT, self.settings.shared_dir, build_bundle()[0]]
        try:
            return await open_link(words, hello=_HELLO, deadline_s=OPEN_S)
        except (AgentFault, LineBroken, OSError, TimeoutError) as error:
            raise Unavailable(
                f"no agent begins on this machine: {error}",
                reason="Unreachable",
                retry_after_s=5.0,
                hint=f"look at it: ls -ld {self.settings.shared_dir}; df -h",
            ) from error

    async def close(self) -> None:
        if "queue" in self.__dict__:
            await self.queue.close()  # a look that is due would open the line again
        if "line" in self.__dict__:
            await self.line.close()


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
        return HintedText(f"job {self.number} is {self.state.lower()}", hint)

    def explain(self) -> str:
        """Returns why it does not run, and when it is expected to."""
        about = f"job {self.number} {_STATES.get(self.state, f'is {self.state.lower()}')}"
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

    async def close(self) -> None:
        await cancel_tasks([it for it in (self._looking, self._cancelling) if it is not None])

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


def explain_reason(reason: str, job: str) -> str:
    """Returns why the job does not run, in words; "" for a reason that is not known."""
    found = max((it for it in _REASONS if reason.startswith(it)), key=len, default="")
    if found == reason or (found and not _LIMIT.match(reason)):
        return _REASONS[found].format(job=job)
    limit = _LIMIT.match(reason)
    return _explain_limit(limit) if limit is not None else ""


def _explain_limit(limit: re.Match[str]) -> str:
    owner, thing, rest = _OWNERS[limit["owner"]], _THINGS[limit["thing"]], limit["rest"]
    if "Minutes" in rest:
        thing = f"minutes of {thing}"
    if limit["sort"] == "Min":
        return f"its {owner} demands more {thing} than it asks for"
    if limit["sort"] == "Grp":
        return f"your {owner}, with all its users, gets no more {thing} now"
    if "PerJob" in rest or "PerNode" in rest:
        each = "a node" if "PerNode" in rest else "a job"
        return f"it asks for more {thing} than {each} of your {owner} may have"
    if limit["thing"] == "Job":
        return f"your {owner} runs no more jobs of yours now"
    return f"your {owner} gives you no more {thing} now"


async def check_slurm(home: Path, account: Account) -> list[CheckResult]:
    """Returns a finding; none for the built-in name without a cluster."""
    if not account.settings:
        return []
    login = SlurmLogin(home, lambda: account)
    try:
        words = ["sinfo", "--noheader", "-o", "%P %D %t %c %G"]
        partition = login.settings.partition
        words += [f"--partition={partition}"] if partition else []
        out = (await login.queue.run(words))["out"]
    except FleetctlError as error:
        away = isinstance(error, Unavailable) and not error.account
        return [CheckResult(account.name, "login", False, str(error), error.hint, away=away)]
    finally:
        await login.close()
    lines = [line.split() for line in out.splitlines()]
    nodes = "; ".join(f"{it[0]}: {it[1]} {it[2]}, {it[3]} cores, {it[4]}" for it in lines)
    return [CheckResult(account.name, "cluster", bool(lines), nodes or "there is no partition")]
