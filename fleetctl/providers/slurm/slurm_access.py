"""A Slurm cluster as `exec`, `cp` and `orphans` enter it: commands that join a job's allocation,
files in its volumes, and jobs that carry a tag of any store.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from fleetctl.common.errors import Refused
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.orphans import GONE_HINT, VOLUME, Orphan, Orphans
from fleetctl.providers.contract.sandbox_access import ENDED_HINT, Entering, ExecStreams, ExecTarget
from fleetctl.providers.contract.volume_files import VolumeFiles
from fleetctl.providers.machines.agent_link import AgentLine
from fleetctl.providers.machines.carried_command import carry_command
from fleetctl.providers.machines.machine_containers import enter_container
from fleetctl.providers.machines.machine_volumes import MachineVolumes
from fleetctl.providers.remote.gangs.joined_sandboxes import first_of
from fleetctl.providers.remote.sandboxes import exec_channel, sandbox_names
from fleetctl.providers.remote.sandboxes.pending_creates import Terminations
from fleetctl.providers.remote.sandboxes.sandbox_names import of_tags
from fleetctl.providers.slurm.slurm_login import SlurmLogin
from fleetctl.providers.slurm.slurm_sandboxes import SlurmSandboxes, job_name, split_handle


class SlurmEntering:
    terminal = True
    binary = True

    def __init__(self, home: Path, account: Account) -> None:
        self._login = SlurmLogin(home, lambda: account)

    async def execute(self, place: ExecTarget, argv: tuple[str, ...], streams: ExecStreams) -> int:
        number, box = split_handle(first_of(place.handle))
        await self._login.line.link()
        job = (await self._login.queue.jobs()).get(job_name(box))
        if job is None or not job.active:
            raise Refused(
                f"the job of run `{place.run}` has ended, so no command can join it",
                hint=ENDED_HINT,
            )
        directory = f"{self._login.root}/boxes/{box.partition('@')[0]}"
        reply = await self._login.line.call("look", {"box": box})
        words = ["srun", f"--jobid={number}", "--overlap", "--quiet", "--ntasks=1", "--nodes=1"]
        words += ["--chdir=/", *(["--pty"] if streams.tty is not None else ["--unbuffered"])]
        given = exec_channel.exec_variables(place)
        inside = [f"{name}={value}" for name, value in given.items()]
        inside += exec_channel.exec_command(place, argv, work=f"{directory}/state/work")
        terminal = streams.tty is not None
        words += enter_container(reply, inside, home=f"{directory}/home", terminal=terminal)
        command = self._login.command(words, terminal=streams.tty is not None)
        code, _ = await carry_command(command, streams)
        return code

    async def link(self, place: ExecTarget, port: int) -> str:
        """Returns "": a command carries the bytes."""
        del place, port
        return ""

    async def close(self) -> None:
        await self._login.close()


_: type[Entering] = SlurmEntering


class SlurmFiles(MachineVolumes[AgentLine]):
    def __init__(self, home: Path, account: Account, *, store_id: str = "") -> None:
        del store_id  # no job is needed for a look
        super().__init__(self._open_lines, _volume_directory)
        self._home = home
        self._account = account

    @asynccontextmanager
    async def _open_lines(self) -> AsyncIterator[list[AgentLine]]:
        """Yields the line to the login. Raises Unavailable where it cannot be reached."""
        login = SlurmLogin(self._home, lambda: self._account)
        try:
            await login.line.link()
            yield [login.line]
        finally:
            await login.close()


def _volume_directory(line: AgentLine, volume: str) -> str:
    return f"{line.facts['root']}/volumes/{volume}"


__: type[VolumeFiles] = SlurmFiles


class SlurmOrphans:
    """Connects to the login by a line of its own, at the first call."""

    def __init__(self, home: Path, account: Account) -> None:
        self._account = account
        self._login = SlurmLogin(home, lambda: account)

    async def find_all(self) -> Sequence[Orphan]:
        if not self._account.settings:
            return []  # the built-in name, of which no cluster was declared
        boxes = (await self._login.line.call("all"))["boxes"]
        jobs = await self._login.queue.jobs()
        found = []
        for box in boxes:
            job = jobs.get(job_name(box["box"]))
            if job is not None and job.active:
                handle = f"{job.number}/{box['box']}"
                orphan = of_tags(self._account.name, handle, box["tags"])
                found += [orphan] if orphan is not None else []
        return found

    async def remove(self, orphan: Orphan) -> None:
        if orphan.kind == VOLUME:
            raise Refused(
                "volumes of a cluster are removed by their Volume object",
                hint="fleetctl delete volume/NAME",
            )
        await Terminations(SlurmSandboxes(self._login, orphan.store)).close(orphan.handle)

    async def claim(self, orphan: Orphan, store_id: str, uid: str) -> None:
        line = self._login.line
        box = split_handle(orphan.handle)[1]
        tags = (await line.call("look", {"box": box}))["tags"]
        fields = {"tags": sandbox_names.claim_tags(tags, store_id, uid)}
        if not tags or not (await line.call("change", {"box": box, "fields": fields}))["ok"]:
            raise Refused(f"job `{orphan.handle}` is gone by now", hint=GONE_HINT)

    async def close(self) -> None:
        await self._login.close()


___: type[Orphans] = SlurmOrphans
