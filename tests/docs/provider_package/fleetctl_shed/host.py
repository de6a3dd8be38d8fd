"""The shed: a directory for each sandbox, in which the guest and all that it starts are plain child
processes. A sandbox lives while its directory has a `box.json`. Its name is never used again, and
its journal can be read when it is over: what lies there belongs to `fleetctl orphans` and the user.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncGenerator, Sequence
from hashlib import sha256
from pathlib import Path
from secrets import token_hex

from fleetctl.providers import (
    Cause,
    Fate,
    GuestCommand,
    GuestEnded,
    HostedSandbox,
    SandboxHost,
    SandboxOrder,
    SandboxOver,
    Unavailable,
    VolumeHost,
    guest_program,
)

LIVING, OVER = "box.json", "over.json"
READ_BYTES = 65536
KILL_S = 10.0  # for killed processes to be gone
LOOK_S = 0.02


class Shed:
    """root: the shed's directory."""

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()
        self._boxes = self._root / "boxes"

    async def create(self, order: SandboxOrder) -> str:
        """Makes the directory whole beside its place: of two that race, one rename wins."""
        place = self._boxes / order.name
        if not place.exists():
            making = self._root / "making" / token_hex(8)
            (making / "state").mkdir(parents=True)
            facts = {"id": token_hex(8), "tags": dict(order.tags)}
            (making / LIVING).write_text(json.dumps(facts))
            self._boxes.mkdir(exist_ok=True)
            try:
                making.rename(place)
            except OSError:  # it is there by now
                shutil.rmtree(making)
        return f"{order.name}/{_facts(place)['id']}"

    async def list(self) -> Sequence[HostedSandbox]:
        found = []
        for place in sorted(self._boxes.glob(f"*/{LIVING}")):
            facts = _facts(place.parent)
            found.append(HostedSandbox(f"{place.parent.name}/{facts['id']}", facts["tags"]))
        return found

    async def fate(self, handle: str) -> Fate | None:
        place = self._place(handle)
        if place is None:
            return Fate(Cause.UNKNOWN)
        return None if (place / LIVING).exists() else Fate(Cause.STOPPED)

    async def end(self, handle: str) -> None:
        place = self._place(handle)
        if place is None:
            return
        if (place / LIVING).exists():  # from now on no work begins in it
            (place / LIVING).replace(place / OVER)
        for _ in range(int(KILL_S / LOOK_S)):
            pids = processes_of(place)
            if not pids:
                shutil.rmtree(place / "state" / "work", ignore_errors=True)
                return
            for pid in pids:
                kill_process(pid)
            await asyncio.sleep(LOOK_S)
        raise Unavailable(f"processes of `{handle}` do not end")

    async def execute(self, handle: str, command: GuestCommand) -> AsyncGenerator[bytes, None]:
        place = self._place(handle)
        if place is None:
            raise SandboxOver(handle)
        verb, *words = command.words
        env = {"PATH": os.environ["PATH"], **command.env}
        if (place / LIVING).exists():
            env["SHED_BOX"] = str(place)  # the mark of all that begins in it
        elif "--order" in words:
            raise SandboxOver(handle)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", str(self._guest()), verb),
            *("--dir", str(place / "state"), *words),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=env,
            cwd=place,
            start_new_session=True,
        )
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(command.stdin)
            process.stdin.close()
            while data := await process.stdout.read(READ_BYTES):
                yield data
            if code := await process.wait():
                raise GuestEnded(code)
        finally:
            if process.returncode is None:
                process.kill()  # the reader alone: runs are no children of it
                await process.wait()

    async def ensure_volume(self, name: str) -> str:
        place = self._root / "volumes" / name
        place.mkdir(parents=True, exist_ok=True)
        return str(place)

    async def remove_volume(self, name: str) -> None:
        shutil.rmtree(self._root / "volumes" / name, ignore_errors=True)

    def _place(self, handle: str) -> Path | None:
        """The directory of a sandbox that is or was; None where another one has its name."""
        name, _, box = handle.partition("/")
        return self._boxes / name if _facts(self._boxes / name).get("id") == box else None

    def _guest(self) -> Path:
        text = guest_program()
        place = self._root / f"guest-{sha256(text.encode()).hexdigest()[:16]}.py"
        if not place.exists():
            making = place.with_suffix(f".{token_hex(4)}")
            making.write_text(text)
            making.rename(place)
        return place


def _facts(place: Path) -> dict:
    """What is written down of a sandbox; empty where there never was one."""
    for name in (LIVING, OVER):
        try:
            return json.loads((place / name).read_text())
        except OSError:
            continue
    return {}


def processes_of(place: Path) -> list[int]:
    """Processes that began in a sandbox: they carry its directory in their environment."""
    mark = f"SHED_BOX={place}\0".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (entry / "environ").read_bytes() + b"\0" and _is_alive(entry):
                found.append(int(entry.name))
        except OSError:
            continue  # it has ended, or is another user's
    return found


def _is_alive(entry: Path) -> bool:
    return (entry / "stat").read_text().rpartition(")")[2].split()[0] != "Z"


def kill_process(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


_: type[SandboxHost] = Shed
__: type[VolumeHost] = Shed
