"""OpenSSH's own client: the command that reaches a machine, and the meaning of its failures.

Keys, agents, jump hosts and known hosts are the user's own, as `ssh` itself finds them; it never
asks and never takes an unknown key. All commands to a machine share one connection.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from fleetctl.common.errors import FleetctlError, Refused, Unavailable
from fleetctl.common.state_paths import is_private
from fleetctl.providers.machines.agent_bundle import BOOT, build_bundle
from fleetctl.providers.machines.agent_link import AgentFault, AgentLink, LineBroken, open_link
from fleetctl.providers.paths import make_private
from fleetctl.providers.programs import run_program

CONNECT_S = 15.0
OPEN_S = 60.0  # to connect, to send the agent once, and for it to answer
SCAN_S = 10.0
ALIVE_S, ALIVE_MAX = 15, 3  # a machine that is silent for 45 s is unreachable
PERSIST_S = 60  # that the connection outlives its last user
AWAY_S, REFUSED_S = 5.0, 30.0
# The longest path of a socket, less what OpenSSH adds while it makes one.
SOCKET_CHARACTERS_MAX = 84
PYTHON = "python3"
INSTALL = "sudo apt-get install openssh-client"
# A shell's report that there is no such program.
_NO_PROGRAM = ("not found", "Not found", "No such file", "Unknown command")


@dataclass(frozen=True, slots=True)
class SshTarget:
    """A machine, and how it is reached. name: in messages; config: a file instead of the usual
    ones, "" without one; python: the program's name there.
    """

    name: str
    host: str
    user: str = ""
    port: int = 0
    identity_file: str = ""
    jump: str = ""
    config: str = ""
    python: str = PYTHON
    directory: str = "~/.fleetctl"

    @property
    def options(self) -> list[str]:
        """Returns the options of `ssh` that lead to the machine."""
        words = ["-F", os.path.expanduser(self.config)] if self.config else []
        words += ["-p", str(self.port)] if self.port else []
        words += ["-l", self.user] if self.user else []
        words += ["-J", self.jump] if self.jump else []
        if self.identity_file:
            words += ["-i", os.path.expanduser(self.identity_file)]
            words += ["-o", "IdentitiesOnly=yes"]
        return words


def find_ssh() -> str:
    """Returns the client's path. Raises Refused."""
    found = shutil.which("ssh")
    if found is None:
        raise Refused("`ssh` is not installed on this machine", hint=INSTALL)
    return found


def ssh_command(
    target: SshTarget,
    words: Sequence[str],
    *,
    sockets: Path,
    terminal: bool = False,
    number: int = 0,
) -> list[str]:
    """Returns the command that runs `words` there. sockets: the directory of shared connections;
    number: the one to use, where one does not take all sessions.
    """
    shared = ["-o", "ControlMaster=no"]
    identity = f"{target!r}{number or ''}"
    path = sockets / sha256(identity.encode()).hexdigest()[:12]
    if len(str(path)) <= SOCKET_CHARACTERS_MAX:
        shared = ["-o", "ControlMaster=auto", "-o", f"ControlPersist={PERSIST_S}"]
        shared += ["-o", f"ControlPath={path}"]
    return [
        find_ssh(),
        *target.options,
        *("-o", "BatchMode=yes"),
        *("-o", "StrictHostKeyChecking=yes"),
        *("-o", f"ConnectTimeout={CONNECT_S:.0f}"),
        *("-o", f"ServerAliveInterval={ALIVE_S}", "-o", f"ServerAliveCountMax={ALIVE_MAX}"),
        *("-o", "ForwardAgent=no", "-o", "ForwardX11=no", "-o", "PermitLocalCommand=no"),
        *("-o", "ClearAllForwardings=yes", "-o", "EscapeChar=none"),
        *shared,
        # With a terminal, the client's own goodbye would be among the command's output.
        *(("-tt", "-o", "LogLevel=ERROR") if terminal else ("-T",)),
        "--",
        target.host,
        _join_words(words),
    ]


def _join_words(words: Sequence[str]) -> str:
    """Quotes a command for the shell of the machine, which knows where the home of a program is."""
    first = words[0]
    if first.startswith("~/"):
        return f"~/{shlex.join([first[2:], *words[1:]])}"
    return shlex.join(words)


def sockets_in(directory: Path) -> Path:
    """Returns where shared connections have their sockets. directory: of the provider's records. A
    longer path than a socket may have is none that connections are shared by.
    """
    place = directory / "ssh"
    if len(str(place)) + 14 > SOCKET_CHARACTERS_MAX:
        short = Path(tempfile.gettempdir()) / f"fleetctl-ssh-{os.geteuid()}"
        with suppress(FileExistsError):
            short.mkdir(mode=0o700)
        # Whoever else made it could listen there, and would get what is meant for a host.
        if is_private(short):
            return short
    return make_private(place)


async def open_ssh_link(
    target: SshTarget, *, sockets: Path, hello: Mapping[str, object]
) -> AgentLink:
    """Opens a line to the machine's agent. Raises Refused and Unavailable with what keeps it."""
    words = [target.python, "-I", "-S", "-c", BOOT, target.directory, build_bundle()[0]]
    argv = ssh_command(target, words, sockets=sockets)
    try:
        return await open_link(argv, hello=hello, deadline_s=OPEN_S)
    except AgentFault as error:
        raise machine_fault(target, error) from error
    except LineBroken as error:
        raise await explain_failure(target, error.said or str(error)) from error
    except TimeoutError as error:
        raise Unavailable(
            f"host `{target.name}` does not answer within {OPEN_S:.0f} s",
            reason="Unreachable",
            retry_after_s=AWAY_S,
        ) from error


def machine_fault(target: SshTarget, error: AgentFault) -> FleetctlError:
    if error.sort == "shell":
        return Unavailable(
            f"host `{target.name}` has work of fleetctl's guest in shell",
            reason="GuestInShell",
            retry_after_s=AWAY_S,
        )
    if error.sort == "python":
        return Unavailable(
            f"host `{target.name}` has Python {error}, and work needs 3.9 or later",
            reason="NoPython",
            retry_after_s=REFUSED_S,
            hint=python_hint(target),
            account=True,
        )
    return Unavailable(
        f"host `{target.name}` cannot take work: {error}",
        reason="MachineFailed",
        retry_after_s=REFUSED_S,
        hint=f"look at it: {plain_command(target)} 'ls -ld {target.directory}; df -h'",
    )


def python_hint(target: SshTarget) -> str:
    """Returns what installs a Python, with and without the rights of an administrator."""
    reach = plain_command(target)
    own = "curl -LsSf https://astral.sh/uv/install.sh | sh; ~/.local/bin/uv python install 3.12"
    return (
        f"{reach} sudo apt-get install -y python3; or as the user: {reach} '{own}', and give the"
        " host `python: ~/.local/bin/python3.12`"
    )


def plain_command(target: SshTarget) -> str:
    """Returns the command by which a person reaches the machine."""
    return shlex.join(["ssh", *target.options, target.host])


async def explain_failure(target: SshTarget, said: str) -> FleetctlError:
    """Returns the error for a line that was not made. said: the client's words."""
    name = target.name
    if "REMOTE HOST IDENTIFICATION HAS CHANGED" in said:
        known = re.search(r"Offending \S+ key in (\S+):(\d+)", said)
        where = f", unlike line {known[2]} of {known[1]}" if known else ""
        hint = f"if the host was reinstalled: ssh-keygen -R {shlex.quote(_known_name(target))}"
        return _account_error(
            f"the key of host `{name}` has changed{where}", "HostKeyChanged", hint
        )
    if "Host key verification failed" in said or "No ED25519 host key is known" in said:
        line, print_ = await _fetch_offered_key(target)
        hint = f"compare it with the host's own, then: echo '{line}' >> {_known_file(target)}"
        shown = f"; it shows {print_}" if print_ else ""
        if not line:
            hint = f"connect once by hand: {plain_command(target)}"
        return _account_error(
            f"the key of host `{name}` is not known here{shown}", "HostKeyUnknown", hint
        )
    if "Permission denied" in said or "Too many authentication failures" in said:
        return _account_error(
            f"host `{name}` does not accept our keys",
            "KeyRefused",
            f"try it by hand: {plain_command(target)} true",
        )
    if os.path.basename(target.python) in said and any(it in said for it in _NO_PROGRAM):
        return _account_error(
            f"host `{name}` has no `{target.python}`, and work needs Python 3.9 or later: claims of"
            " its slots, supervisors of tasks and their leases are written in it",
            "NoPython",
            python_hint(target),
        )
    if "Bad configuration option" in said or "Can't open user config file" in said:
        last = said.splitlines()[-1]
        return _account_error(
            f"ssh cannot read its configuration: {last}", "WrongConfig", "ssh -G HOST"
        )
    words = [it.strip() for it in said.splitlines() if it.strip()]
    return Unavailable(
        f"host `{name}` cannot be reached: {words[-1] if words else 'ssh says nothing'}",
        reason="Unreachable",
        retry_after_s=AWAY_S,
        hint=f"try it by hand: {plain_command(target)} true",
    )


def _account_error(message: str, reason: str, hint: str) -> Unavailable:
    return Unavailable(message, reason=reason, retry_after_s=REFUSED_S, hint=hint, account=True)


def _known_name(target: SshTarget) -> str:
    """Returns the host's name in files of known hosts, as far as the options give it."""
    return f"[{target.host}]:{target.port}" if target.port not in (0, 22) else target.host


def _known_file(target: SshTarget) -> str:
    """Returns the file that a new key belongs into."""
    if target.config:
        try:
            text = Path(target.config).expanduser().read_text(encoding="utf-8")
        except OSError:
            text = ""
        found = re.search(r"(?im)^\s*UserKnownHostsFile[\s=]+(\S+)", text)
        if found:
            return found[1]
    return "~/.ssh/known_hosts"


async def _fetch_offered_key(target: SshTarget) -> tuple[str, str]:
    """Returns (a line for a file of known hosts, the key's fingerprint), asked the way that work
    goes, also over other hosts; empty where that fails. Nothing is trusted by it.
    """
    with tempfile.TemporaryDirectory(prefix="fleetctl-") as place:
        file = Path(place, "known")
        argv = [find_ssh(), *target.options, "-o", "BatchMode=yes", "-T"]
        argv += ["-o", "StrictHostKeyChecking=accept-new", "-o", f"UserKnownHostsFile={file}"]
        argv += ["-o", "GlobalKnownHostsFile=/dev/null", "-o", "HashKnownHosts=no"]
        argv += ["-o", "PreferredAuthentications=none", "-o", "ControlPath=none"]
        argv += ["-o", f"ConnectTimeout={SCAN_S:.0f}", "--", target.host, "true"]
        try:
            await run_program(argv, deadline_s=SCAN_S)
            lines = file.read_text(encoding="ascii").splitlines()
            shown = await run_program(["ssh-keygen", "-l", "-f", str(file)])
        except (OSError, TimeoutError, UnicodeDecodeError):
            return "", ""
    words = shown.out.decode("ascii", "replace").split()
    return lines[0] if lines else "", words[1] if len(words) > 1 else ""
