"""The nursery as the emulator sees it: one small process that forks a box in a few milliseconds.

Forking the emulator itself would copy its page tables for each box, and starting a fresh Python for
each would take ten times as long.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.emulators.boxes.channel import Channel

INNER = Path(__file__).parent / "inner/__main__.py"
MEMORY_BYTES_MIN = 2 << 30
# Set to 1, boxes are plain processes, as on a machine that lets nobody make namespaces.
PLAIN_VARIABLE = "EMULATED_BOXES_PLAIN"
# Set to 1, each Python in a box is an interpreter that was started for it. Else a box that is asked
# to run the interpreter which the emulator has forks its own; see inner/program.py for when.
COLD_VARIABLE = "EMULATED_BOXES_COLD"
_nurseries: weakref.WeakKeyDictionary[
    asyncio.AbstractEventLoop, dict[Library | None, asyncio.Future[Nursery]]
] = weakref.WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Library:
    """A module to import before boxes are forked; source: the directory that has it here, place:
    where boxes see that directory, variables: what it reads while it is imported.
    """

    module: str
    source: Path
    place: str
    variables: tuple[tuple[str, str], ...] = ()


class Nursery:
    """Owns the process. Use from the event loop that started it."""

    def __init__(self, process: subprocess.Popen[bytes], channel: Channel, *, warm: bool) -> None:
        self.warm = warm
        self._process = process
        self._channel = channel
        self._numbers = itertools.count(1)
        self._births: dict[int, asyncio.Future[int]] = {}
        self.isolated = False
        self.problem = ""  # why boxes are not isolated
        self.scratch = Path()  # for directories of boxes; vanishes with the nursery
        self.overlays = False  # whether host directories can be written to, copy-on-write
        self._listener: asyncio.Task[None] | None = None

    @classmethod
    async def started(
        cls, *, plain: bool = False, warm: bool = True, library: Library | None = None
    ) -> Nursery:
        """`plain` refuses namespaces even where they work, for tests of the fallback; without
        `warm` no Python is forked; a Python that is forked has imported `library`.
        """
        ours, theirs = socket.socketpair()
        scratch = tempfile.mkdtemp(prefix="boxes-", dir=_roomy_memory())
        mode = "plain" if plain else "try"
        imported = [library.module, str(library.source), library.place] if library else []
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", INNER, str(theirs.fileno()), mode, scratch, *imported],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env={**_environment(), **dict(library.variables if library else ())},
        )
        theirs.close()
        nursery = cls(process, Channel(ours), warm=warm)
        nursery.scratch = Path(scratch)
        hello = await nursery._channel.receive()
        if hello is None:
            raise OSError("the nursery of boxes ended before it could tell why")
        nursery.isolated, nursery.problem = hello[0]["isolated"], hello[0]["problem"]
        nursery.overlays = hello[0]["overlays"]
        for trial in nursery.scratch.iterdir():
            shutil.rmtree(trial)
        nursery._listener = asyncio.create_task(nursery._listen())
        return nursery

    async def birth(self, spec: dict[str, Any], control: socket.socket) -> int:
        """Fork a box's pid 1 that talks over `control`. The returned pidfd is the caller's."""
        number = next(self._numbers)
        born = asyncio.get_running_loop().create_future()
        self._births[number] = born
        await self._channel.send({**spec, "id": number}, [control.fileno()])
        return int(await born)

    def stop(self) -> None:
        """End the nursery and with it every box. Returns when all their processes are gone."""
        if self._listener:
            self._listener.cancel()
        self._channel.close()
        self._process.wait()

    async def _listen(self) -> None:
        while (received := await self._channel.receive()) is not None:
            message, descriptors = received
            born = self._births.pop(message["born"])
            if not born.done():
                born.set_result(descriptors[0])
        for born in self._births.values():
            if not born.done():
                born.set_exception(OSError("the nursery of boxes has ended"))


def _environment() -> dict[str, str]:
    """Few variables, in the locale of boxes: what is forked has read its own from them."""
    loader = {name: value for name, value in os.environ.items() if name.startswith("LD_")}
    # What is bound at the start need not be bound in each fork.
    return {**loader, "LD_BIND_NOW": "1", "LANG": "C.UTF-8"}


def _roomy_memory() -> str | None:
    """A file system in memory, where a box starts in a fifth of the time; None when it is small."""
    place = "/dev/shm"
    if not os.path.isdir(place) or not os.access(place, os.W_OK):
        return None
    free = os.statvfs(place)
    return place if free.f_bavail * free.f_frsize >= MEMORY_BYTES_MIN else None


async def nursery_here(library: Library | None = None) -> Nursery:
    """The running loop's nursery, one for each library, started at first use."""
    here = _nurseries.setdefault(asyncio.get_running_loop(), {})
    plain, cold = (os.environ.get(name) == "1" for name in (PLAIN_VARIABLE, COLD_VARIABLE))
    if plain or cold:
        library = None
    if library not in here:
        begun = Nursery.started(plain=plain, warm=not cold, library=library)
        here[library] = asyncio.ensure_future(begun)
    return await asyncio.shield(here[library])
