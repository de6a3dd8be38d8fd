"""A box: a private file tree, pid namespace and set of mounts, that can be killed at one stroke."""

from __future__ import annotations

import asyncio
import functools
import itertools
import os
import shutil
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.emulators.boxes.channel import Channel, Received, close_all, pid_of
from tests.emulators.boxes.nursery import Library, Nursery, nursery_here
from tests.emulators.boxes.objects import ObjectMount
from tests.emulators.boxes.process import BoxProcess

OBJECTS_MAX = 8  # as many descriptors go with a message
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class BoxError(OSError):
    """A box or a process in it could not be started; errno is what the kernel said."""


@functools.cache
def base_path() -> str:
    """PATH inside a box: the Python that runs the emulator, then the system."""
    return f"{Path(sys.base_prefix) / 'bin'}:{SYSTEM_PATH}"


class Box:
    """Use from one event loop. Processes see: the host's /usr, /etc and /opt (copy-on-write where
    the kernel can), a fresh writable tree elsewhere, and `mounts`, `layers` and `files`.
    """

    def __init__(
        self,
        directory: Path,
        *,
        mounts: Mapping[str, Path] | None = None,
        objects: Mapping[str, Path] | None = None,
        files: Mapping[str, Path] | None = None,
        layers: Mapping[str, Path] | None = None,
        base: Sequence[Path] = (),
        env: Mapping[str, str] | None = None,
        hostname: str = "box",
        own_devices: bool = False,
        nursery: Nursery | None = None,
        library: Library | None = None,
    ) -> None:
        """`directory` becomes the box's own. `mounts` are shared and writable, `files` (also
        directories) read-only, `layers` are directories that the box may change in a copy of its
        own; `base` are such directories for the whole tree, topmost first, for example another
        box's `root`. `objects` are mounts that behave as a bucket does (objects.py), at most
        OBJECTS_MAX; one with another mount below it is a plain directory. A Python
        that is forked in it has imported `library`. With `own_devices` its /dev is its own, and
        mounts may be below it.
        """
        self.directory = directory
        self.root = directory / "root"  # the box's files, from outside; `host_path` knows mounts
        self.env = {"PATH": base_path(), "HOME": "/root", "LANG": "C.UTF-8", **(env or {})}
        self.isolated = False  # without: plain processes, nothing at absolute paths
        self.processes: dict[int, BoxProcess] = {}  # the live ones, by the box's own numbers
        self.spawned_count = 0
        self.pid = 0  # pid 1 of the box, as the host numbers it
        plain, whole = _apart(mounts or {}, objects or {}, files or {})
        self._places = {"mounts": plain, "files": dict(files or {}), "objects": whole}
        self.objects: tuple[str, ...] = ()  # paths of those that the kernel let us make
        self._mounted = [  # inner ones first
            (place.rstrip("/"), str(source))
            for place, source in sorted({**plain, **whole}.items(), reverse=True)
        ]
        self._layers, self._base = dict(layers or {}), list(base)
        self._hostname, self._nursery, self._library = hostname, nursery, library
        self._own_devices = own_devices
        self._channel: Channel | None = None
        self._handle = -1
        self._gone = asyncio.Event()
        self._numbers = itertools.count(1)
        self._starting: dict[int, asyncio.Future[BoxProcess]] = {}
        self._kept: set[asyncio.Future[None]] = set()

    @property
    def alive(self) -> bool:
        return self._handle >= 0 and not self._gone.is_set()

    async def start(self) -> None:
        """Raises BoxError with the kernel's reason."""
        nursery = self._nursery or await nursery_here(self._library)
        self.isolated = nursery.isolated
        for name in ("root", "work"):
            os.makedirs(f"{self.directory}/{name}", exist_ok=True)
        ours, theirs = socket.socketpair()
        try:
            self._handle = await nursery.birth(self._spec(nursery), theirs)
        finally:
            theirs.close()
        self.pid = pid_of(self._handle)
        asyncio.get_running_loop().add_reader(self._handle, self._on_gone)
        self._channel = Channel(ours)
        first = await self._channel.receive()
        if first is None or not first[0]["ready"]:
            await self.kill()
            problem = first[0]["problem"] if first else "its first process died"
            raise BoxError(0, f"the box at `{self.directory}` did not start: {problem}")
        self.objects = tuple(first[0]["objects"])
        for path, device in zip(self.objects, first[1], strict=True):
            ObjectMount(device, self._places["objects"][path]).start()
        self._channel.follow(self._on_message)

    async def spawn(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str = "/root",
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        pty: bool = False,
    ) -> BoxProcess:
        """Start a process with these descriptors (the caller keeps and closes its own copies; None
        is /dev/null). `env` adds to the box's. With `pty` the three are one new terminal instead.
        """
        if not self.alive or self._channel is None:
            raise BoxError(3, "the box has ended")
        number = next(self._numbers)
        started: asyncio.Future[BoxProcess] = asyncio.get_running_loop().create_future()
        self._starting[number] = started
        opened: list[int] = []
        terminal = self._descriptors(opened, pty=pty)
        given = [terminal[1]] * 3 if terminal else [stdin, stdout, stderr]
        if None in given:
            opened.append(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC))
        message = {
            "id": number,
            "argv": list(argv),
            "env": {**self.env, **(env or {})},
            "cwd": cwd,
            "pty": pty,
        }
        try:
            await self._channel.send(message, [opened[-1] if fd is None else fd for fd in given])
            process = await started
        except OSError:
            if terminal:
                os.close(terminal[0])
            raise
        finally:
            close_all(opened)
        process.terminal = terminal[0] if terminal else None
        return process

    async def kill(self) -> None:
        """SIGKILL for everything in the box; returns when all of it is gone."""
        if self._handle < 0:
            return
        if not self._gone.is_set():
            if self.isolated:
                with suppress(ProcessLookupError):  # it ended, and that is on its way to us
                    signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            elif self._channel:
                self._channel.finish()  # its pid 1 then ends all that came from it
        await self._gone.wait()

    async def ended(self) -> None:
        """Returns when the box is gone, whatever ended it."""
        await self._gone.wait()

    def host_path(self, path: str) -> Path:
        """Where the emulator finds what the box sees at `path` (mounts and the box's own tree)."""
        return Path(self.host_text(path))

    def host_text(self, path: str) -> str:
        """The same for who asks several times a request: a Path is dear to make."""
        for place, source in self._mounted:
            if path == place or path.startswith(place + "/"):
                return source + path[len(place) :].rstrip("/")
        return f"{self.root}/{path.strip('/')}" if path.strip("/") else str(self.root)

    def is_object(self, path: str) -> bool:
        """Returns whether what is at an absolute path is in one of the object mounts."""
        return any(path.startswith(place.rstrip("/") + "/") for place in self.objects)

    def remove(self) -> None:
        """Delete the box's directory; only after its end."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def _spec(self, nursery: Nursery) -> dict[str, Any]:
        python = sys.base_prefix
        own = [] if python.startswith(("/usr", "/opt")) else [(python, python, True)]
        binds = [(path, str(source), True) for path, source in self._places["files"].items()]
        binds += [(path, str(source), False) for path, source in self._places["mounts"].items()]
        return {
            "root": str(self.root),
            "work": str(self.directory / "work"),
            "base": [str(part) for part in self._base],
            "overlays": nursery.overlays,
            "warm": nursery.warm,
            "layers": [(path, str(lower)) for path, lower in self._layers.items()],
            "binds": own + sorted(binds),
            "objects": [(place, str(one)) for place, one in self._places["objects"].items()],
            "hostname": self._hostname[:63],
            "own_devices": self._own_devices,
        }

    def _descriptors(self, opened: list[int], *, pty: bool) -> tuple[int, int] | None:
        if not pty:
            return None
        master, slave = os.openpty()
        opened.append(slave)
        return master, slave

    def _on_message(self, received: Received | None) -> None:
        if received is None:
            return
        message, descriptors = received
        if "started" in message:
            self._on_started(message, descriptors[0])
        elif "refused" in message:
            number = message["errno"]
            error = BoxError(number, os.strerror(number), message["name"])
            self._settle_start(message["refused"], error)
        elif message["ended"] in self.processes:
            self.processes.pop(message["ended"]).settle(message["code"])

    def _on_started(self, message: dict[str, Any], pidfd: int) -> None:
        inner, channel = message["inner"], self._channel
        pid = pid_of(pidfd)
        os.close(pidfd)

        def send_signal(number: int, group: bool) -> None:
            order = {"signal": int(number), "inner": inner, "group": group}
            if self.alive and channel:
                self._keep(asyncio.ensure_future(_sent(channel, order)))

        process = BoxProcess(pid, send_signal)
        self.processes[inner] = process
        self.spawned_count += 1
        self._settle_start(message["started"], process)

    def _keep(self, task: asyncio.Future[None]) -> None:
        """The loop holds tasks weakly; without this one could vanish before it has run."""
        self._kept.add(task)
        task.add_done_callback(self._kept.discard)

    def _settle_start(self, number: int, outcome: BoxProcess | BoxError) -> None:
        waiting = self._starting.pop(number)
        if waiting.done():
            return
        if isinstance(outcome, BoxError):
            waiting.set_exception(outcome)
        else:
            waiting.set_result(outcome)

    def _on_gone(self) -> None:
        """The kernel tells of the end of pid 1 only after all others of its namespace are gone."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._handle)
        os.close(self._handle)
        self._gone.set()
        if self._channel:
            self._channel.close()
        for waiting in self._starting.values():
            if not waiting.done():
                waiting.set_exception(BoxError(3, "the box has ended"))
        for process in self.processes.values():
            process.settle(-signal.SIGKILL)
        self.processes.clear()


async def _sent(channel: Channel, order: dict[str, Any]) -> None:
    with suppress(OSError):  # the box has ended in the meantime
        await channel.send(order)


def _apart(
    mounts: Mapping[str, Path], objects: Mapping[str, Path], files: Mapping[str, Path]
) -> tuple[dict[str, Path], dict[str, Path]]:
    """(plain mounts, object mounts): nothing can be mounted into one before it is answered for."""
    places = [*mounts, *objects, *files]
    whole = {
        place: source
        for place, source in [*objects.items()][:OBJECTS_MAX]
        if not any(one.startswith(place.rstrip("/") + "/") for one in places)
    }
    return {**mounts, **{one: objects[one] for one in objects if one not in whole}}, whole
