"""Commands beside a task in a cluster: `srun` joins the allocation of its job. Called by the CLI
through wiring, without a controller.
"""

from __future__ import annotations

from pathlib import Path

from fleetctl.common.errors import Refused
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.exec import ENDED_HINT, Entering, ExecStreams, ExecTarget
from fleetctl.providers.machines.carried_command import carry_command
from fleetctl.providers.remote.gangs.joined_sandboxes import first_of
from fleetctl.providers.remote.sandboxes import exec_command
from fleetctl.providers.slurm.slurm_login import SlurmLogin
from fleetctl.providers.slurm.slurm_sandboxes import job_name, split_handle


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
        given = {"HOME": f"{directory}/home", **exec_command.exec_variables(place)}
        words = ["srun", f"--jobid={number}", "--overlap", "--quiet", "--ntasks=1", "--nodes=1"]
        words += ["--chdir=/", *(["--pty"] if streams.tty is not None else ["--unbuffered"])]
        words += ["env", *(f"{name}={value}" for name, value in given.items())]
        words += exec_command.exec_command(place, argv, work=f"{directory}/state/work")
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
