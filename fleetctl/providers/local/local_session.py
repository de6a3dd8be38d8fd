"""Sessions of interpreters on this machine: one guard process each, in a directory that is locked
while it is used and filled before the driver starts.

Called through wiring by fleetctl/interpreter. No session outlives the process that opened it: the
guard ends all when our end of its life pipe closes, as it does when we die. The directory of a
session whose host was killed is removed when the next session makes its own.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.providers.contract.sandbox_access import (
    EndSession,
    OpenSession,
    Session,
    SessionRequest,
)
from fleetctl.providers.local import supervisor_locks
from fleetctl.providers.local.assets import envs
from fleetctl.providers.local.assets import local_source as gitsource
from fleetctl.providers.local.local_layout import COVERING_HINT, LocalLayout, covers_state_dir
from fleetctl.providers.local.local_provider import TIERS
from fleetctl.providers.local.runs.supervisor_messages import PROCESSES_MAX
from fleetctl.providers.local.supervisor.run import procs
from fleetctl.providers.local.supervisor.run.cleaning import remove_tree
from fleetctl.providers.local.supervisor_locks import lock_is_free
from fleetctl.providers.paths import checked_name, make_private
from fleetctl.providers.sources import git

READY_S = 60.0  # for namespaces to stand
STOP_S = 30.0  # for the processes of a session to be gone; the kernel needs milliseconds
LOOK_S = 0.05
LINE_BYTES_MAX = 64 * 1024 * 1024
LAST_WORDS_BYTES = 2000
# options that change the files which code finds
NATIVE_REFUSED = ("image", "secrets", "sandbox_spec")
_GUARD = (
    "import sys; sys.path.insert(0, sys.argv[1]); from supervisor.session import main;"
    " main(*map(int, sys.argv[2:]))"
)
SUPERVISOR_PARENT = str(Path(__file__).parent)
log = logging.getLogger(__name__)
_life_pipes: set[int] = set()  # our ends, which a fork of ours must not hold

WITHOUT_REPOSITORY = "daytona-workspace"  # as the directory is called there


async def open_session(home: Path, request: SessionRequest) -> Session:
    """Opens a session. Raises Refused or Unavailable; then no part of it is left."""
    _refuse_what_is_not_ours(request)
    layout = LocalLayout(home)
    if request.place and covers_state_dir(request.place.mount_path, layout.home):
        raise Refused(
            f"`{request.place.mount_path}` holds the state directory `{layout.home}`, which"
            " interpreters work in",
            hint=COVERING_HINT,
        )
    python = await envs.python_of(layout, request.image)
    room = await asyncio.to_thread(SessionDir, layout, request.name)
    try:
        workspace = await room.fill(layout, request)
        session = await _launch_guard(room, _guard_config(layout, room, request, python))
    except BaseException:
        room.close()
        raise
    try:
        await session.ready()
    except BaseException:
        await session.stop()
        raise
    session.workspace = workspace
    return session


async def end_session(home: Path, name: str, native: Mapping[str, str]) -> bool:
    """Ends a session, as contract/sandbox_access.py describes. Its guard ends everything when its
    program dies, and last unlocks its directory.
    """
    room = LocalLayout(home).root / "sessions" / name
    if not room.is_dir():
        return False
    try:
        async with asyncio.timeout(STOP_S):
            while not lock_is_free(room):
                await asyncio.sleep(LOOK_S)
    except TimeoutError as error:
        raise Unavailable(f"the processes of `{name}` did not end within {STOP_S:.0f} s") from error
    await asyncio.to_thread(remove_tree, str(room))
    return True


class LocalSession:
    def __init__(
        self,
        room: SessionDir,
        process: asyncio.subprocess.Process,
        life: int,
        errors: IO[bytes],
    ) -> None:
        self.place_root = ""
        self.workspace = ""
        self.committed_late = ""
        self._room = room
        self._process = process
        self._life = life
        self._errors = errors
        self._why = ""
        self._words = ""
        self._heard: asyncio.Queue[str | None] = asyncio.Queue()
        self._over = asyncio.Event()
        self._reader = asyncio.create_task(self._read())
        self._stopping: asyncio.Task[None] | None = None

    async def ready(self) -> None:
        """Reads the guard's first message. Raises Refused or Unavailable."""
        try:
            async with asyncio.timeout(READY_S):
                message = _parse_message(await self._heard.get() or "")
        except TimeoutError as error:
            raise Unavailable(f"a session was not ready within {READY_S:.0f} s") from error
        if message.get("tier") == "namespaces":
            raise Refused(
                f"isolation tier `namespaces` cannot be had on this machine: {message['problem']}",
                hint="unset FLEETCTL_LOCAL_TIER to run in tier `process`",
            )
        if "problem" in message:
            raise Refused(
                str(message["problem"]), hint="run one after the other, or on another path"
            )
        if "ready" not in message:
            raise Unavailable(f"a session ended at once: {self.ending()}")
        self.place_root = str(message["root"])
        if "cannot be made" in message["ready"]:
            log.warning("a volume is not at its path: %s", message["ready"])

    async def send(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line.encode("ascii") + b"\n")
            await self._process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError, RuntimeError) as error:
            raise Unavailable("the session's process does not read any more") from error

    async def lines(self) -> AsyncIterator[str]:
        while (line := await self._heard.get()) is not None:
            yield line

    def ending(self) -> str:
        why = self._why or "its guard process was killed"
        if self._words:
            return f"{why}; its last words: {self._words}"
        return why

    async def reload(self) -> None:
        """Does no work: volumes are directories of this machine."""

    async def stop(self) -> None:
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop())
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        _close_life(self._life)
        try:
            # The guard ends last, and with it the line.
            await asyncio.wait_for(self._over.wait(), STOP_S)
            await self._process.wait()
        except TimeoutError as error:
            raise Unavailable(f"a session's processes did not end within {STOP_S:.0f} s") from error
        finally:
            self._room.close()

    async def _read(self) -> None:
        """Everything that comes, until the guard is gone."""
        assert self._process.stdout is not None
        while True:
            try:
                line = (await self._process.stdout.readuntil(b"\n")).decode("ascii", "replace")
            except asyncio.IncompleteReadError:
                break
            except asyncio.LimitOverrunError:
                self._why = f"it sent a line of more than {LINE_BYTES_MAX} bytes"
                _close_life(self._life)
                break
            ended = _parse_message(line).get("ended") if '"ended"' in line else None
            if ended is not None:
                self._why = self._why or str(ended)
            elif line.strip():
                self._heard.put_nowait(line.strip())
        with self._errors:
            self._errors.seek(0, os.SEEK_END)
            self._errors.seek(max(0, self._errors.tell() - LAST_WORDS_BYTES))
            self._words = " ".join(self._errors.read().decode("utf-8", "replace").split())
        self._heard.put_nowait(None)
        self._over.set()


_: OpenSession = open_session
_end: EndSession = end_session


def _refuse_what_is_not_ours(request: SessionRequest) -> None:
    for name in NATIVE_REFUSED:
        if request.native.get(name) is not None:
            raise Refused(
                f"`{name}` is an object of another provider, and this interpreter runs on `local`",
                hint="use image_python_version, image_pip_packages and secrets={'NAME': 'value'}",
            )
    if request.secrets:
        raise Refused(
            f"secret `{request.secrets[0]}` is kept by another provider, and this interpreter runs"
            " on `local`",
            hint="pass the values: secrets={'NAME': os.environ['NAME']}",
        )


def _guard_config(
    layout: LocalLayout,
    room: SessionDir,
    request: SessionRequest,
    python: envs.EnvPython,
) -> dict[str, Any]:
    """Returns the guard's config, sent over a pipe; it holds no secrets. Raises Refused."""
    tier = os.environ.get("FLEETCTL_LOCAL_TIER", "auto")
    if tier not in TIERS:
        raise Refused(
            f"FLEETCTL_LOCAL_TIER is `{tier}`; it must be one of {', '.join(TIERS)}",
            hint="unset it to use the best tier that this machine has",
        )
    number = int.from_bytes(os.urandom(8), "big") % (procs.SUPERVISORS - 1) + 1
    return {
        "tier": tier,
        "directory": str(room.path),
        "home": str(layout.home),
        "expose": [*python.expose, str(room.driver.parent)],
        "work_dir": str(room.work),
        "source": None,
        "volumes": [_volume_config(layout, room, request)] if request.place else [],
        "limits": {"processes": PROCESSES_MAX, "data": 0, "file": 0},
        "lifetime_s": request.lifetime_s,
        "mark": number * procs.RUNS_PER_SUPERVISOR,
        "command": [python.python, "-X", "utf8", "-u", str(room.driver)],
        "env": {
            **python.variables,
            "HOME": str(room.work),
            **(dict(request.image.env) if request.image else {}),
        },
    }


def _volume_config(
    layout: LocalLayout,
    room: SessionDir,
    request: SessionRequest,
) -> dict[str, Any]:
    assert request.place is not None
    name = request.place.volume or "memory"
    variable = "".join(c if c.isascii() and c.isalnum() else "_" for c in name).upper()
    return {
        "name": name,
        "dir": str(room.place(layout, request)),
        "mount_path": os.path.normpath(request.place.mount_path),
        "links": [],
        "read_only": False,
        "fleeting": request.place.volume is None,
        "variable": f"FLEETCTL_VOLUME_{variable}",
    }


async def _launch_guard(room: SessionDir, config: dict[str, Any]) -> LocalSession:
    config_from, config_to = os.pipe()
    life_theirs, life = os.pipe()
    errors = tempfile.TemporaryFile(prefix="fleetctl-")  # noqa: SIM115 - the session owns it
    _life_pipes.add(life)
    inherited = (config_from, life_theirs, room.lock)
    try:
        process = await asyncio.create_subprocess_exec(
            *(config["command"][0], "-I", "-X", "utf8", "-c", _GUARD, SUPERVISOR_PARENT),
            *map(str, inherited),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            pass_fds=inherited,
            start_new_session=True,
            limit=LINE_BYTES_MAX,
            cwd="/",
            env={"PATH": os.environ.get("PATH", os.defpath), "HOME": os.environ.get("HOME", "/")},
        )
        os.write(config_to, json.dumps(config).encode())
    except BaseException:
        _close_life(life)
        errors.close()
        raise
    finally:
        for descriptor in (config_from, config_to, life_theirs):
            os.close(descriptor)
    return LocalSession(room, process, life, errors)


def _parse_message(line: str) -> dict[str, Any]:
    """Returns the message on a line; {} for a line without a message."""
    try:
        message = json.loads(line)
    except ValueError:
        return {}
    if isinstance(message, dict):
        return message
    return {}


def _close_life(life: int) -> None:
    if life in _life_pipes:
        _life_pipes.discard(life)
        os.close(life)


def _let_go_in_forks() -> None:
    for life in list(_life_pipes):
        _close_life(life)


os.register_at_fork(after_in_child=_let_go_in_forks)


class SessionDir:
    """Owns the directory and its lock; the guard process holds the same lock."""

    def __init__(self, layout: LocalLayout, name: str) -> None:
        top = make_private(layout.root / "sessions")
        self.path = top / checked_name(name)
        self.work = self.path / "work"
        self.driver = self.path / "program" / "driver.py"
        with _lock_all(top):
            doomed = [
                one for one in top.iterdir() if one.is_dir() and supervisor_locks.lock_is_free(one)
            ]
            make_private(self.path)
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self.lock = os.open(self.path / "lock", flags, 0o600)
            fcntl.flock(self.lock, fcntl.LOCK_EX)
        for one in doomed:
            remove_tree(str(one))

    def place(self, layout: LocalLayout, request: SessionRequest) -> Path:
        """Returns the directory that the order wants mounted."""
        assert request.place is not None
        if request.place.volume:
            return layout.volume(request.place.volume)
        return self.path / "place"

    async def fill(self, layout: LocalLayout, request: SessionRequest) -> str:
        """Makes the files that the session starts with; returns the absolute path of its workspace,
        or "".

        Raises Refused or Unavailable when the repository cannot be had.
        """
        make_private(self.work)
        make_private(self.driver.parent)
        self.driver.write_text(request.driver, encoding="utf-8")
        if request.place is not None:
            make_private(self.place(layout, request))
        workspaces = self.work / "workspace"
        if request.repository is not None:
            git.check_source(request.repository)
            top = make_private(workspaces / git.directory_name(request.repository.url))
            await gitsource.clone_commit(request.repository, top)
            return str(top)
        if request.workspace:
            return str(make_private(workspaces / WITHOUT_REPOSITORY))
        return ""

    def close(self) -> None:
        """Removes it. Idempotent. Needs no thread: those are gone when the interpreter ends."""
        if self.lock >= 0:
            remove_tree(str(self.path))
            os.close(self.lock)
            self.lock = -1


@contextmanager
def _lock_all(top: Path) -> Iterator[None]:
    """Holds the lock of all directories, so that none is seen between its making and its
    locking.
    """
    lock = os.open(top / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
