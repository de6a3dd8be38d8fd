"""Finds, starts and loses supervisors, one a (resource, template hash): each is forked from a
zygote, and what a killed one left is ended first.

Called by the provider alone. A supervisor outlives this process while a run is in it. A few idle
ones are kept for the next task of their job; the others are asked to leave, so that many small jobs
need no more processes than run at a time.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.providers.contract.base import Notify
from fleetctl.providers.local import supervisor_locks
from fleetctl.providers.local.local_layout import LocalLayout
from fleetctl.providers.local.runs.supervisor_link import (
    NeverReady,
    StartFailed,
    SupervisorGone,
    SupervisorLink,
    connect_supervisor,
    greet_fork,
)
from fleetctl.providers.local.runs.supervisor_messages import guest_file
from fleetctl.providers.local.supervisor.run import procs
from fleetctl.providers.paths import make_private

START_TRIES = 20  # another controller may start the same supervisor, or one may just be leaving
READY_S = 60.0  # for a supervisor to come up, imports of the task's libraries included
LEAVE_TRIES, LEAVE_PAUSE_S = 50, 0.02  # for a killed supervisor's lock to be free
BIRTHS_AT_ONCE = 4 * (os.cpu_count() or 1)
BIRTH_S = 0.5  # after which a birth counts no more among them
IDLE_MAX = 8  # supervisors without a run; each leaves by itself after a minute

MakeConfig = Callable[[], Awaitable[tuple[str, dict[str, Any]]]]  # (interpreter, config)


# The tries of `end_leftovers`. With namespaces the kernel has ended everything with the supervisor,
# and the function waits until that is done. Linux only: elsewhere a killed supervisor's processes
# cannot be recognized and are left to their own time limits.
TRIES = 100
PAUSE_S = 0.02


# A zygote, one for each Python, ends when we close its stdin, also by dying. No run is lost with
# it, and the start of the next supervisor brings another.
PACKAGE = Path(__file__).parents[1] / "supervisor"
IN_NAMESPACES = b"n"
AS_IT_IS = b"-"
IDLE_S = 60.0  # without a new supervisor; the next one pays a start of Python then
LOG_BYTES_MAX = 1024 * 1024  # then it begins again
LEND_TRIES = 2  # a zygote may have been killed since it was last used


class Supervisors:
    def __init__(self, layout: LocalLayout, notify: Notify) -> None:
        self._layout = layout
        self._notify = notify
        self._links: dict[str, SupervisorLink] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._runs: dict[str, set[str]] = {}  # supervisor -> runs to speak of when it goes
        self._idle: dict[str, None] = {}  # supervisors without such runs, the first idle first
        self._zygotes = Zygotes(layout)
        self._births = Births()
        self._closing = False

    def list_perhaps_living(self) -> list[str]:
        """Returns the supervisors that serve or were killed; one that exited removed its socket."""
        top = self._layout.supervisors
        names = sorted(os.listdir(top)) if top.exists() else []
        return [name for name in names if os.path.lexists(top / name / "sock")]

    def linked(self, name: str) -> SupervisorLink | None:
        link = self._links.get(name)
        if link is not None and link.alive:
            return link
        return None

    def watch(self, name: str, run: str) -> None:
        """Calls `notify` with this run when its supervisor ends."""
        self._idle.pop(name, None)
        self._runs.setdefault(name, set()).add(run)

    def forget(self, name: str, run: str) -> None:
        runs = self._runs.get(name, set())
        runs.discard(run)
        if not runs and self.linked(name) is not None:
            self._runs.pop(name, None)
            self._idle[name] = None
            if len(self._idle) > IDLE_MAX:
                self._ask_to_leave(next(iter(self._idle)))

    async def reach(self, name: str) -> SupervisorLink | None:
        """Returns the living supervisor with that name, or None."""
        link = self.linked(name)
        if link is not None:
            return link
        async with self._lock(name):
            return self.linked(name) or await self._connect(name)

    async def ensure(self, name: str, make_config: MakeConfig) -> SupervisorLink:
        """Returns the living supervisor with that name, started if need be. Raises Refused or
        Unavailable.
        """
        link = self.linked(name)
        if link is not None:
            return link
        async with self._lock(name):
            prepared = None
            for _ in range(START_TRIES):
                link = self.linked(name) or await self._connect(name)
                if link is not None:
                    return link
                prepared = prepared or await make_config()
                async with self._births.turn():
                    link = await self._start(name, *prepared)
                if link is not None:
                    return link
        raise Unavailable(
            f"supervisors of `{name}` end as soon as they are ready", retry_after_s=1.0
        )

    async def is_gone(self, name: str, token: str) -> bool:
        """Returns whether the supervisor of that life is dead, with all its processes."""
        directory = self._layout.supervisor(name)
        for _ in range(LEAVE_TRIES):
            link = await self.reach(name)
            if link is not None:
                return link.token != f"{name}/{token}"
            if supervisor_locks.lock_is_free(directory):
                return await end_leftovers(supervisor_locks.last_holder(directory))
            # It is coming up, or on its way out.
            await asyncio.sleep(LEAVE_PAUSE_S)
        return False

    def close(self) -> None:
        self._closing = True
        for link in self._links.values():
            link.close()
        self._zygotes.close()

    def _ask_to_leave(self, name: str) -> None:
        """Asks it to leave as soon as it is idle."""
        del self._idle[name]
        link = self.linked(name)
        if link is not None:
            with suppress(SupervisorGone):
                link.send({"op": "leave"})

    def _lock(self, name: str) -> asyncio.Lock:
        return self._locks.setdefault(name, asyncio.Lock())

    async def _connect(self, name: str) -> SupervisorLink | None:
        directory = self._layout.supervisor(name)
        if not directory.exists():
            return None
        link = await connect_supervisor(directory, self._notify, self._drop_link)
        if link is not None:
            self._links[name] = link
        return link

    def _drop_link(self, link: SupervisorLink) -> None:
        if self._links.get(link.name) is link:
            del self._links[link.name]
            self._idle.pop(link.name, None)
        if not self._closing:
            for run in sorted(self._runs.pop(link.name, ())):
                self._notify(run)

    async def _start(
        self,
        name: str,
        python: str,
        config: dict[str, Any],
    ) -> SupervisorLink | None:
        """Starts a supervisor; None when another one is there. Raises Refused or Unavailable."""
        directory = make_private(self._layout.supervisor(name))
        if supervisor_locks.lock_is_free(directory) and not await end_leftovers(
            supervisor_locks.last_holder(directory)
        ):
            raise Unavailable(
                f"processes of an earlier supervisor of {config['resource']} do not end",
                retry_after_s=5.0,
            )
        born = config["tier"] != "process"
        while True:
            try:
                link = await self._launch(name, python, config, in_namespaces=born)
                break
            except StartFailed as error:
                problem = error
            if isinstance(problem, NeverReady) and config["preimport"]:
                # A library that crashes on import may do so in the task, where it can be seen.
                config = {**config, "preimport": []}
            elif born:
                born = False  # without namespaces it finds another way, or reports the lack
            else:
                raise _not_started(config, problem)
        if link is not None:
            self._links[name] = link
        return link

    async def _launch(
        self,
        name: str,
        python: str,
        config: dict[str, Any],
        *,
        in_namespaces: bool,
    ) -> SupervisorLink | None:
        """Starts a supervisor. Raises StartFailed with the cause, and Unavailable."""
        directory = self._layout.supervisor(name)
        link = await greet_fork(
            self._zygotes.fork(python, in_namespaces=in_namespaces),
            (name, self._notify, self._drop_link),
            {"directory": str(directory), "config": config},
        )
        try:
            async with asyncio.timeout(READY_S):
                await link.await_greeting()
        except asyncio.CancelledError:
            link.close()
            raise
        except TimeoutError as error:
            link.close()
            self._zygotes.let_go(python)  # it may be stopped, and with it all that is to come
            raise NeverReady(f"it was not ready within {READY_S:.0f} s") from error
        except SupervisorGone as error:
            raise NeverReady(f"it ended at once (see {self._zygotes.log})") from error
        if link.token:
            return link
        return None


class Births:
    """How many supervisors come up at a time: as many as the machine can work on. More would take
    as long, and everybody else would wait among them.
    """

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(BIRTHS_AT_ONCE)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Yields a turn to start a supervisor. One that takes long, because it imports much, holds
        up the others no further.
        """
        await self._free.acquire()
        over = asyncio.get_running_loop().call_later(BIRTH_S, self._free.release)
        try:
            yield
        finally:
            if over.when() > asyncio.get_running_loop().time():
                over.cancel()
                self._free.release()


def _not_started(config: dict[str, Any], problem: StartFailed) -> Refused | Unavailable:
    if config["tier"] == "namespaces" and not isinstance(problem, NeverReady):
        return Refused(
            f"isolation tier `namespaces` cannot be had on this machine: {problem}",
            hint="unset FLEETCTL_LOCAL_TIER to run in tier `process`",
        )
    message = f"the supervisor of {config['resource']} did not start: {problem}"
    return Unavailable(message, retry_after_s=5.0)


async def end_leftovers(holder: supervisor_locks.SupervisorHolder | None) -> bool:
    """Ends all processes with the holder's mark; False when one is still there after two
    seconds.
    """
    if holder is None or sys.platform != "linux" or holder.boot != supervisor_locks.boot_id():
        return True
    for _ in range(TRIES):
        found = await asyncio.to_thread(_marked_pids, holder.mark_base)
        if not found:
            return True
        procs.kill_all(found)
        await asyncio.sleep(PAUSE_S)
    return False


def _marked_pids(base: int) -> list[int]:
    return procs.find_marked(base, base + procs.RUNS_PER_SUPERVISOR)


@dataclass(slots=True)
class Zygote:
    """A zygote that lives, as far as we know."""

    process: subprocess.Popen[bytes]
    line: socket.socket
    used_at_s: float


class Zygotes:
    def __init__(self, layout: LocalLayout) -> None:
        self._layout = layout
        self._living: dict[str, Zygote] = {}  # by interpreter
        self._ended: list[subprocess.Popen[bytes]] = []  # to be collected
        self._looking: asyncio.TimerHandle | None = None

    def fork(self, python: str, *, in_namespaces: bool) -> socket.socket:
        """Returns a connection to a new fork, which waits for its supervisor's config. Raises
        Unavailable.

        in_namespaces: born in new ones, if that can be had; it cannot leave them.
        """
        how = IN_NAMESPACES if in_namespaces else AS_IT_IS
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with ExitStack() as unless_lent, theirs:
            unless_lent.callback(ours.close)
            for _ in range(LEND_TRIES):
                try:
                    socket.send_fds(self._zygote(python).line, [how], [theirs.fileno()])
                except OSError:  # it was killed, or does not read
                    self.let_go(python)
                    continue
                unless_lent.pop_all()
                return ours
        raise Unavailable(f"`{python}` did not start: it ends (see {self.log})", retry_after_s=5.0)

    def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        for python in list(self._living):
            self.let_go(python)
        for process in self._ended:
            process.kill()  # which ends no supervisor
            process.wait()

    def _zygote(self, python: str) -> Zygote:
        zygote = self._living.get(python)
        now_s = asyncio.get_running_loop().time()
        if zygote is None:
            zygote = self._living[python] = self._start(python, now_s)
        zygote.used_at_s = now_s
        self._look_later()
        return zygote

    def _start(self, python: str, now_s: float) -> Zygote:
        """Starts a zygote. Raises Unavailable. Errors in it are seen by its first fork."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.setblocking(False)
        # Not through asyncio: it would wait for the process when its loop closes.
        with theirs, self.log.open("wb" if self._log_is_full() else "ab") as log:
            try:
                process = subprocess.Popen(
                    [python, "-I", "-X", "utf8", str(PACKAGE), str(guest_file(self._layout))],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=log,
                    start_new_session=True,
                    cwd="/",
                    env=_zygote_environment(),
                )
            except OSError as error:
                ours.close()
                raise Unavailable(
                    f"`{python}` cannot be started: {error}", retry_after_s=5.0
                ) from error
        return Zygote(process, ours, now_s)

    @property
    def log(self) -> Path:
        return make_private(self._layout.root) / "zygotes.log"

    def _log_is_full(self) -> bool:
        return self.log.exists() and self.log.stat().st_size > LOG_BYTES_MAX

    def let_go(self, python: str) -> None:
        """The next fork is of another one."""
        zygote = self._living.pop(python, None)
        if zygote is not None:
            zygote.line.close()
            self._ended.append(zygote.process)

    def _look_later(self) -> None:
        if self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(IDLE_S, self._look)

    def _look(self) -> None:
        """Closes unused zygotes, and collects ended ones."""
        self._looking = None
        idle_since_s = asyncio.get_running_loop().time() - IDLE_S
        for python, zygote in list(self._living.items()):
            if zygote.used_at_s <= idle_since_s:
                self.let_go(python)
        self._ended = [process for process in self._ended if process.poll() is None]
        if self._living or self._ended:
            self._look_later()


def _zygote_environment() -> dict[str, str]:
    """Returns the variables that supervisors themselves need; runs get none of them."""
    names = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    # Symbols bound now are bound for all processes that are forked.
    return {**kept, "LD_BIND_NOW": "1"}
