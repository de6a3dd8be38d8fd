"""Commands beside a task on a host: `ssh` itself carries their streams, with a terminal or without
one. Called by the CLI through wiring, without a controller; joins the controller's connection.
"""

from __future__ import annotations

from pathlib import Path

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.exec import ENDED_HINT, Entering, ExecStreams, ExecTarget
from fleetctl.providers.machines.carried_command import carry_command
from fleetctl.providers.machines.openssh import explain_failure, sockets_in, ssh_command
from fleetctl.providers.remote.gangs.joined_sandboxes import first_of
from fleetctl.providers.remote.sandboxes import exec_command
from fleetctl.providers.ssh.ssh_hosts import SshHosts
from fleetctl.providers.ssh.ssh_sandboxes import split_handle

FAILED = 255  # exit code of ssh itself, and of few programs


class SshEntering:
    terminal = True
    binary = True

    def __init__(self, home: Path, account: Account) -> None:
        self._sockets = sockets_in(account.directory(home))
        self._hosts = SshHosts(home, lambda: account)

    async def execute(self, place: ExecTarget, argv: tuple[str, ...], streams: ExecStreams) -> int:
        host, box = split_handle(first_of(place.handle))
        line = self._hosts.line(host)
        reply = await line.call("look", {"box": box})
        if reply["state"] not in ("new", "live"):
            raise Refused(
                f"the sandbox of run `{place.run}` is gone, so no command can join it",
                hint=ENDED_HINT,
            )
        directory = f"{line.facts['root']}/boxes/{box.partition('@')[0]}"
        given = {"HOME": f"{directory}/home", **exec_command.exec_variables(place)}
        words = ["env", *(f"{name}={value}" for name, value in given.items())]
        words += exec_command.exec_command(place, argv, work=f"{directory}/state/work")
        tty = streams.tty is not None
        command = ssh_command(line.target, words, sockets=self._sockets, terminal=tty)
        code, said = await carry_command(command, streams)
        if code == FAILED and ("Connection" in said or "closed" in said):
            raise Unavailable(
                f"the command beside run `{place.run}` was lost: {said.splitlines()[-1]}"
            ) from await explain_failure(line.target, said)
        return code

    async def link(self, place: ExecTarget, port: int) -> str:
        """Returns "": a command carries the bytes, as the host's ports may be closed to us."""
        del place, port
        return ""

    async def close(self) -> None:
        await self._hosts.close()


_: type[Entering] = SshEntering
