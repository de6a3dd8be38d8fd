"""A way to a machine without Python: each request is a session of its own, in which a program in
shell does one thing and ends. The counterpart of agent_link.py; see guest/posix/machine.sh.

Sessions share connections. An SSH server takes ten in each by default, so that runs
that are followed are spread over several. A claim is chosen here, from all claims of the machine,
and made there only if nobody has made another one meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Any

from fleetctl.common.errors import FleetctlError, Unavailable
from fleetctl.common.event_loop import cancel_tasks
from fleetctl.guest.posix.order import encode_bytes
from fleetctl.guest.ship.assemble import machine_source, posix_source
from fleetctl.providers.machines.agent_bundle import MARK
from fleetctl.providers.machines.agent_link import (
    AWAY_S,
    BEAT_S,
    BEATS_PER_LEASE,
    END_S,
    ERROR_BYTES_MAX,
    READ_BYTES,
    AgentFault,
    LineBroken,
    Link,
    LinkStream,
)
from fleetctl.providers.machines.openssh import (
    OPEN_S,
    PYTHON,
    SshTarget,
    explain_failure,
    machine_fault,
    open_ssh_link,
    python_hint,
    ssh_command,
)
from fleetctl.providers.machines.shipped.boxes import BoxError, choose_claim

SHELL = "shell"  # of `guest` in the facts of such a machine
CALLS_AT_ONCE = 2
STREAMS_MAX = 6  # in one connection, beside calls and commands of users
CLAIMS_MAX = 50  # tries, of which each failed because somebody else was first
LOST = 255  # exit code of ssh itself
MISSING, NO_VOLUME = 3, 4  # exit codes of `entries`
FAULT = 5  # exit code of a request that reports why it failed
# Exit codes of a shell that does not find the program: somebody has removed our directory.
NO_PROGRAM = (2, 126, 127)

_PROGRAMS = (
    "cat chmod cksum date dd df find grep head id ln ls mkdir mkfifo mv readlink rm rmdir sed"
    " sleep stat tail touch tr uname wc"
)
_INSTALL = 'cat >"$1.$$" && [ "$(wc -c <"$1.$$")" -eq "$2" ] && mv "$1.$$" "$1" && echo {}'
# Arguments: the directory of ours, and the version. As BOOT of agent_bundle.py, it takes no program
# from a directory to which others may write.
BOOT = f"""
umask 077
say() {{ echo "{MARK} $*"; }}
fault() {{ say fault "$*"; exit 1; }}
case $1 in "~/"*) d=$HOME/${{1#"~/"}} ;; *) d=$1 ;; esac
for program in {_PROGRAMS}; do
    command -v $program >/dev/null 2>&1 || {{ say lacks $program; exit 1; }}
done
mkdir -p "$d" 2>/dev/null || fault "\\`$d\\` cannot be made"
d=$(cd -P "$d" && pwd) || fault "\\`$1\\` cannot be entered"
set -- "$d" "$2" $(ls -ldn "$d")
case $3 in ????????w*) fault "every user of the machine may write to \\`$d\\`" ;; esac
case $5 in
    0 | "$(id -u)") ;;
    *) fault "\\`$d\\` belongs to user $5, not to the one who logs in" ;;
esac
mkdir -p "$d/volumes" "$d/sources" "$d/shell/boxes" "$d/shell/claims" "$d/shell/agent/$2" &&
    cd "$d/shell" || fault "\\`$d\\` cannot be written to"
[ -L volumes ] || ln -s ../volumes volumes
[ -L sources ] || ln -s ../sources sources
[ -f "agent/$2/agent.sh" ] && say have "$PWD" || say need "$PWD"
"""
# The fields of a request that are the words of its command, in order.
_WORDS = {
    "look": ("box",),
    "list": (),
    "end": ("box",),
    "stop": ("box", "run", "grace_s"),
    "ensure": ("top", "path"),
    "touch": ("top", "path"),
    "remove": ("top", "path", "recursive", "whole"),
}
_INSTALL = 'cat >"$1.$$" && [ "$(wc -c <"$1.$$")" -eq "$2" ] && mv "$1.$$" "$1" && echo {}'


class ShellLink:
    """Made by `open_shell_link`. sockets: the directory of shared connections."""

    posix = True

    def __init__(self, target: SshTarget, sockets: Path) -> None:
        self._target = target
        self._sockets = sockets
        self._calls = asyncio.Semaphore(CALLS_AT_ONCE)
        self._streams: Counter[int] = Counter()  # by the number of a connection
        self._open: set[ShellStream] = set()
        self._beating: asyncio.Task[None] | None = None
        self._agent = ""
        self.broken = False
        self.facts: dict[str, Any] = {}

    # -- opening -----------------------------------------------------------------------------------

    async def begin(self, hello: Mapping[str, object]) -> None:
        """Sends the programs, where the machine does not have them, and asks for its facts. Raises
        LineBroken and AgentFault.
        """
        texts = {"guest.sh": posix_source().encode(), "agent.sh": machine_source().encode()}
        version = sha256(b"".join(texts.values())).hexdigest()[:16]
        words = ["sh", "-c", BOOT, "fleetctl", self._target.directory, version]
        out = await self._session(words).output()
        state = next((it for it in out.decode("utf-8", "replace").splitlines() if MARK in it), "")
        sort, _, detail = state.partition(f"{MARK} ")[2].partition(" ")
        if sort == "lacks":
            raise AgentFault("program", f"`{detail}`")
        if sort not in ("need", "have"):
            raise AgentFault("machine", detail or "its shell reports nothing")
        place = f"{detail}/agent/{version}"
        self._agent = f"{place}/agent.sh"
        if sort == "need":
            for name, data in texts.items():
                await self._install(f"{place}/{name}", data)
        fleet, lease_s = str(hello["fleet"]), float(str(hello["lease_s"]))
        words = [str(hello["interface"]), fleet, f"{lease_s:.0f}"]
        self.facts = await self._call("hello", words)
        if fleet:
            self._beating = asyncio.ensure_future(self._beat(fleet, lease_s))

    async def _install(self, path: str, data: bytes) -> None:
        words = ["sh", "-c", _INSTALL, "fleetctl", path, str(len(data))]
        if not await self._session(words, data).output():
            raise AgentFault("machine", f"`{path}` cannot be written: is its disk full?")

    async def _beat(self, fleet: str, lease_s: float) -> None:
        """Reports again and again that this process works, for as long as it is answered."""
        every_s = min(BEAT_S, lease_s / BEATS_PER_LEASE) if lease_s else BEAT_S
        with suppress(LineBroken, AgentFault):
            while True:
                await asyncio.sleep(every_s)
                words = [*self._agent_words("here"), fleet, f"{lease_s:.0f}"]
                await self._session(words).reply()  # it does not wait for other requests

    # -- requests ----------------------------------------------------------------------------------

    async def call(
        self, op: str, fields: Mapping[str, object] | None = None, payload: bytes = b""
    ) -> dict[str, Any]:
        """Returns the reply, as AgentLink does. Raises LineBroken and AgentFault."""
        del payload  # no request but `attach` has one
        asked: Mapping[str, Any] = fields or {}
        if op == "make":
            return await self._make(asked["box"], asked["order"])
        if op == "entries":
            return await self._list_entries(asked)
        if op == "measure":
            found = await self._list_entries({**asked, "recursive": True})
            entries = found["entries"]
            return {"bytes": None if entries is None else sum(it[2] for it in entries)}
        if op == "environment":
            raise AgentFault("image", "it has no Python 3.9 or later, and `image` asks for one")
        if op == "change":
            return await self._call(op, [asked["box"]], _encode_json(asked["fields"]["tags"]))
        return await self._call(op, [_format_word(asked.get(it, "")) for it in _WORDS[op]])

    def stream(self, op: str, fields: Mapping[str, object], payload: bytes = b"") -> LinkStream:
        """Begins `attach`, `receive` or `send`. Raises AgentFault for what needs Python."""
        asked: Mapping[str, Any] = fields
        if op == "attach":
            begins = bool(payload)
            words = [_format_word(begins), asked["box"], asked["run"], *asked["words"]]
            given = _secret_lines(asked["secrets"]) + payload if begins else b""
            return self._session([*self._agent_words(op), *words], given, follows=True)
        if op == "receive":
            mode = f"{asked['mode']:o}"
            words = [asked["top"], asked["path"], mode, str(asked["bytes"])]
            return self._session([*self._agent_words(op), *words], None)
        if op == "send":
            return self._session([*self._agent_words(op), asked["top"], asked["path"]])
        raise AgentFault("never", f"host `{self._target.name}` has no Python, which `{op}` needs")

    async def _call(self, op: str, words: Sequence[str], given: bytes = b"") -> dict[str, Any]:
        async with self._calls:
            return await self._session([*self._agent_words(op), *words], given).reply()

    def _agent_words(self, op: str) -> list[str]:
        return ["sh", self._agent, op]

    def _session(
        self, words: Sequence[str], given: bytes | None = b"", *, follows: bool = False
    ) -> ShellStream:
        number = 0
        if follows:
            number = next(it for it in range(1, 1 << 16) if self._streams[it] < STREAMS_MAX)
        argv = ssh_command(self._target, words, sockets=self._sockets, number=number)
        return ShellStream(self, argv, given, number)

    def note_open(self, stream: ShellStream) -> None:
        self._open.add(stream)
        self._streams[stream.number] += 1

    def note_closed(self, stream: ShellStream) -> None:
        if stream in self._open:
            self._open.discard(stream)
            self._streams[stream.number] -= 1

    async def close(self) -> None:
        """Ends it. Runs go on."""
        self.broken = True
        if self._beating is not None:
            await cancel_tasks([self._beating])
        await asyncio.gather(*(stream.end() for stream in list(self._open)))

    # -- claims ------------------------------------------------------------------------------------

    async def _make(self, box: str, order: dict[str, Any]) -> dict[str, Any]:
        """Makes a box, or returns the present one. Raises AgentFault where it does not fit."""
        devices = self.facts["gpus"][: order["size"]["gpus"]]
        cores = list(range(self.facts["cpu"]))
        for _ in range(CLAIMS_MAX):
            known = await self._call("claims", [])
            others = [it["claim"] for it in known["claims"]]
            for it in known["claims"]:
                name, _, identity = it["box"].partition("@")
                if name == box:
                    return {"box": {"id": identity}}
            try:
                claim = choose_claim(order, others, devices, cores)
            except BoxError as error:
                raise AgentFault(error.sort, str(error)) from error
            words = [box, os.urandom(4).hex(), str(known["number"]), order["tags"].get("fleet", "")]
            reply = await self._call("make", words, _claim_lines(claim, order["tags"], others))
            if "box" in reply:
                return reply
        raise LineBroken("other controllers claim its slots all the time")

    # -- files -------------------------------------------------------------------------------------

    async def _list_entries(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        words = [asked["top"], asked["path"], _format_word(asked.get("recursive", False))]
        stream = self._session([*self._agent_words("entries"), *words])
        out = await stream.output(also=(MISSING, NO_VOLUME))
        if stream.code in (MISSING, NO_VOLUME):
            return {"entries": None, "top": stream.code == MISSING}
        found = [_read_entry(it) for it in out.decode("utf-8", "surrogateescape").splitlines()]
        if not asked.get("contents"):
            return {"entries": [entry for _, entry in found]}
        return await self._add_digests(asked, found)

    async def _add_digests(
        self, asked: Mapping[str, Any], found: Sequence[tuple[int, list[Any]]]
    ) -> dict[str, Any]:
        """As file_digests.py does, with the machine's own `sha256sum`."""
        limits = asked["limits"]
        wanted = {
            path: size
            for mode, (path, _, size, _) in found
            if S_ISREG(mode) and size <= limits["file_bytes"] and "\\" not in path
            if fnmatchcase(os.path.basename(path), asked["contents"])
        }
        if len(wanted) > limits["files"] or sum(wanted.values()) > limits["bytes"]:
            return {"entries": [], "fault": "much"}
        given = "".join(f"{path}\n" for path in wanted).encode("utf-8", "surrogateescape")
        words = [*self._agent_words("digests"), asked["top"]]
        try:
            async with asyncio.timeout(limits["seconds"]):
                out = await self._session(words, given).output()
        except TimeoutError:
            return {"entries": [], "fault": "slow"}
        lines = out.decode("utf-8", "surrogateescape").splitlines()
        digests = {it[66:]: it[:64] for it in lines}
        regular = [entry for mode, entry in found if S_ISREG(mode) or S_ISDIR(mode)]
        return {"entries": [[*it, digests.get(it[0], "")] for it in regular]}


class ShellStream:
    """One session: the input and output of a program there. given: its whole input; None where it
    comes in pieces. number: of its connection, along which runs are followed.
    """

    def __init__(
        self, link: ShellLink, argv: Sequence[str], given: bytes | None, number: int
    ) -> None:
        self._link = link
        self._argv = argv
        self._given = given
        self.number = number
        self._said = b""
        self._process: asyncio.subprocess.Process | None = None
        self._beside: list[asyncio.Task[None]] = []
        self.code: int | None = None

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yields its output until it ends. Raises LineBroken."""
        try:
            process = await self._begin()
            assert process.stdout is not None
            while data := await process.stdout.read(READ_BYTES):
                yield data
            code = await process.wait()
            await asyncio.gather(*self._beside)
        finally:
            await self.end()
        if code in (LOST, *NO_PROGRAM):
            self._link.broken = True
            said = self._said.decode("utf-8", "replace").strip()
            raise LineBroken(said.splitlines()[-1] if said else "its session ended", said)
        self.code = code

    async def _begin(self) -> asyncio.subprocess.Process:
        if self._process is None:
            self._link.note_open(self)
            self._process = await asyncio.create_subprocess_exec(
                *self._argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,  # a Ctrl-C of the terminal is not for it
            )
            self._beside = [asyncio.ensure_future(self._read_errors(self._process))]
            if self._given is not None:
                self._beside.append(asyncio.ensure_future(self._write(self._process, self._given)))
        return self._process

    async def _read_errors(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        while data := await process.stderr.read(READ_BYTES):
            self._said = (self._said + data)[-ERROR_BYTES_MAX:]

    async def _write(self, process: asyncio.subprocess.Process, data: bytes) -> None:
        assert process.stdin is not None
        with suppress(ConnectionError):  # it needs no more, or its end reports why
            process.stdin.write(data)
            await process.stdin.drain()
        process.stdin.close()

    async def end(self) -> None:
        """Ends the session, if it has not ended, and waits for that."""
        self._link.note_closed(self)
        process = self._process
        if process is None:
            return
        if process.returncode is None:
            self.leave()
            await process.wait()
        assert process.stdout is not None
        with suppress(TimeoutError):
            async with asyncio.timeout(END_S):  # its pipes close with it
                await process.stdout.read()
                await asyncio.gather(*self._beside)
        await cancel_tasks(self._beside)

    async def output(self, *, also: Sequence[int] = ()) -> bytes:
        """Returns its whole output. also: exit codes that are replies. Raises LineBroken and
        AgentFault.
        """
        found = b"".join([piece async for piece in self.pieces()])
        if self.code == FAULT:
            fault = json.loads(found.splitlines()[-1])
            raise AgentFault(str(fault["error"]), str(fault["message"]))
        if self.code and self.code not in also and not found:
            said = self._said.decode("utf-8", "replace").strip()
            raise AgentFault("machine", said or f"its process ended with code {self.code}")
        return found

    async def reply(self) -> dict[str, Any]:
        """Returns the line of JSON in its output. Raises LineBroken and AgentFault."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        text = (await self.output()).decode("utf-8", "replace")
        line = next((it for it in text.splitlines() if it.startswith("{")), "")
        if not line:
            raise AgentFault("machine", text.strip() or self._said.decode("utf-8", "replace"))
        found: dict[str, Any] = json.loads(line)
        return found

    async def send(self, data: bytes) -> None:
        process = await self._begin()
        assert process.stdin is not None
        try:
            process.stdin.write(data)
            await process.stdin.drain()
        except ConnectionError as error:
            raise LineBroken(str(error)) from error

    def end_input(self) -> None:
        if self._process is None:
            self._given = b""
        elif self._process.stdin is not None:
            self._process.stdin.close()

    def leave(self) -> None:
        """Asks the session to end."""
        if self._process is not None and self._process.returncode is None:
            # `Process.kill` would take the exit code from the watcher that waits for it.
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)


def _format_word(value: object) -> str:
    """Returns a field of a request as a word of a command."""
    if isinstance(value, bool):
        return "yes" if value else ""
    return str(value)


def _encode_json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def _secret_lines(secrets: Mapping[str, str]) -> bytes:
    """Returns a line for each secret whose name a shell can set, and an empty one."""
    named = {name: text for name, text in secrets.items() if name.isidentifier() and name.isascii()}
    lines = [f"{name} {encode_bytes(text.encode())}\n" for name, text in named.items()]
    return "".join([*lines, "\n"]).encode()


def _claim_lines(
    claim: Mapping[str, Any], tags: Mapping[str, str], others: Sequence[Mapping[str, Any]]
) -> bytes:
    """Returns the input of `make`; see boxes.sh."""
    cores = ",".join(map(str, claim["cores"]))
    devices = ",".join(map(str, claim["gpus"])) if claim["hides_gpus"] else "-"
    used = {link["path"] for it in others for link in it["links"]}
    links = "".join(
        f"{it['path']}\n{it['target']}\n{'used' if it['path'] in used else ''}\n"
        for it in claim["links"]
    )
    about = _encode_json(claim) + f"{cores}\n{devices}\n".encode() + _encode_json(tags)
    return about + links.encode()


def _read_entry(line: str) -> tuple[int, list[Any]]:
    """Returns (the mode, the entry as machine_files.py describes it)."""
    mode, size, changed, path = line.split(" ", 3)
    directory = S_ISDIR(int(mode, 16))
    name = path.removeprefix("./") or "."
    return int(mode, 16), [name, directory, 0 if directory else int(size), float(changed)]


async def open_shell_link(
    target: SshTarget, *, sockets: Path, hello: Mapping[str, object]
) -> ShellLink:
    """Opens a way to a machine without Python. Raises Unavailable."""
    link = ShellLink(target, sockets)
    try:
        async with asyncio.timeout(OPEN_S):
            await link.begin(hello)
    except BaseException as error:
        await link.close()
        if isinstance(error, AgentFault):
            raise _explain_fault(target, error) from error
        if isinstance(error, LineBroken):
            raise await explain_failure(target, error.said or str(error)) from error
        if isinstance(error, TimeoutError):
            raise Unavailable(
                f"host `{target.name}` does not answer within {OPEN_S:.0f} s",
                reason="Unreachable",
                retry_after_s=AWAY_S,
            ) from error
        raise
    return link


def _explain_fault(target: SshTarget, error: AgentFault) -> FleetctlError:
    if error.sort == "program":
        return Unavailable(
            f"host `{target.name}` has no Python 3.9 or later, and no {error}, which work by its"
            " shell alone needs",
            reason="NoPython",
            retry_after_s=AWAY_S,
            hint=python_hint(target),
            account=True,
        )
    return machine_fault(target, error)


async def open_host_link(target: SshTarget, *, sockets: Path, hello: Mapping[str, object]) -> Link:
    """Opens a line to the agent of a machine, in Python where it has one of 3.9 or later, else in
    shell. A Python that its user named must be there. Raises Refused and Unavailable.
    """
    try:
        return await open_ssh_link(target, sockets=sockets, hello=hello)
    except Unavailable as error:
        plain = error.reason == "NoPython" and target.python == PYTHON
        if not plain and error.reason != "GuestInShell":
            raise
    return await open_shell_link(target, sockets=sockets, hello=hello)
