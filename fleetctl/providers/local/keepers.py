"""Finds, starts and loses keepers. One a (resource, template hash); called by the provider
alone.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from fleetctl.errors import Refused, Unavailable
from fleetctl.providers.base import Notify
from fleetctl.providers.local import leftovers, places
from fleetctl.providers.local.link import Link, connect
from fleetctl.providers.local.paths import Layout
from fleetctl.providers.rundir.places import make_private

START_TRIES = 20  # another controller may start the same keeper, or one may just be leaving
COLLECT_S = 0.5  # after which the parents of a keeper have ended
READY_S = 60.0  # for a keeper to come up, imports of the task's libraries included
LEAVE_TRIES, LEAVE_PAUSE_S = 50, 0.02  # for a keeper that was killed to let go of its lock
PACKAGE = Path(__file__).parent / "keeper"

MakeConfig = Callable[[], Awaitable[tuple[str, dict[str, Any]]]]  # (interpreter, config)


class Keepers:
    def __init__(self, layout: Layout, notify: Notify) -> None:
        self._layout = layout
        self._notify = notify
        self._links: dict[str, Link] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._runs: dict[str, set[str]] = {}  # keeper -> runs to speak of when it goes
        self._children: list[subprocess.Popen[bytes]] = []  # to be collected when they have ended
        self._closing = False

    def linked(self, name: str) -> Link | None:
        link = self._links.get(name)
        return link if link is not None and link.alive else None

    def watch(self, name: str, run: str) -> None:
        """Tell `notify` of this run when its keeper goes away."""
        self._runs.setdefault(name, set()).add(run)

    def forget(self, name: str, run: str) -> None:
        self._runs.get(name, set()).discard(run)

    async def reach(self, name: str) -> Link | None:
        """The living keeper of that name; None when there is none."""
        link = self.linked(name)
        if link is not None:
            return link
        async with self._lock(name):
            return self.linked(name) or await self._connect(name)

    async def ensure(self, name: str, make_config: MakeConfig) -> Link:
        """The living keeper of that name, started if need be. Raises Refused or Unavailable."""
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
                await self._start(name, *prepared)
        raise Unavailable(f"keepers of `{name}` end as soon as they are ready", retry_after_s=1.0)

    async def is_gone(self, name: str, token: str) -> bool:
        """Whether the keeper of that life is dead, and all of its processes with it."""
        directory = self._layout.keeper(name)
        for _ in range(LEAVE_TRIES):
            link = await self.reach(name)
            if link is not None:
                return link.token != f"{name}/{token}"
            if places.lock_is_free(directory):
                return await leftovers.gone(places.holder(directory))
            # It is coming up, or on its way out.
            await asyncio.sleep(LEAVE_PAUSE_S)
        return False

    def close(self) -> None:
        self._closing = True
        for link in self._links.values():
            link.close()

    def _lock(self, name: str) -> asyncio.Lock:
        return self._locks.setdefault(name, asyncio.Lock())

    async def _connect(self, name: str) -> Link | None:
        directory = self._layout.keeper(name)
        if not directory.exists():
            return None
        link = await connect(directory, self._notify, self._lost)
        if link is not None:
            self._links[name] = link
        return link

    def _lost(self, link: Link) -> None:
        if self._links.get(link.name) is link:
            del self._links[link.name]
        if not self._closing:
            for run in sorted(self._runs.pop(link.name, ())):
                self._notify(run)

    async def _start(self, name: str, python: str, config: dict[str, Any]) -> None:
        """Start the keeper and wait until it, or another one, serves. Raises Refused or
        Unavailable.
        """
        directory = make_private(self._layout.keeper(name))
        if places.lock_is_free(directory) and not await leftovers.gone(places.holder(directory)):
            raise Unavailable(
                f"processes of an earlier keeper of {config['resource']} do not end",
                retry_after_s=5.0,
            )
        for attempt in (config, {**config, "preimport": []}):
            problem = await self._launch(directory, python, attempt)
            if problem is None:
                return
            # A library that crashes on import may do so in the task, where it can be seen.
        if config["tier"] == "namespaces":
            raise Refused(
                f"isolation tier `namespaces` cannot be had on this machine: {problem}",
                hint="unset FLEETCTL_LOCAL_TIER to run in tier `process`",
            )
        raise Unavailable(
            f"the keeper of {config['resource']} did not start: {problem}", retry_after_s=5.0
        )

    async def _launch(self, directory: Path, python: str, config: dict[str, Any]) -> str | None:
        """None when it is ready, else what went wrong."""
        path = directory / "config.json"
        temporary = directory / "config.json.new"
        temporary.write_text(json.dumps(config), encoding="utf-8")
        temporary.replace(path)
        self._children = [child for child in self._children if child.poll() is None]
        # Not through asyncio: its transports would end the keeper together with the event loop.
        with (directory / "keeper.log").open("ab") as log:
            child = subprocess.Popen(
                [python, "-I", "-X", "utf8", str(PACKAGE), str(directory)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                cwd="/",
                env=_environment(),
            )
        self._children.append(child)
        assert child.stdout is not None
        try:
            line = await asyncio.wait_for(_first_line(child.stdout.fileno()), READY_S)
        except TimeoutError:
            child.kill()
            return f"it was not ready within {READY_S:.0f} s"
        finally:
            child.stdout.close()
            # Where namespaces stand, the process that we started has handed over and ends now.
            asyncio.get_running_loop().call_later(COLLECT_S, child.poll)
        if not line:
            return f"it ended at once (see {directory / 'keeper.log'})"
        problem = json.loads(line).get("problem")
        return None if problem is None else str(problem)


async def _first_line(handle: int) -> bytes:
    """What arrives on a pipe up to its first line's end, or to its own."""
    loop = asyncio.get_running_loop()
    os.set_blocking(handle, False)
    received = b""
    while not received.endswith(b"\n"):
        readable = loop.create_future()
        loop.add_reader(handle, readable.set_result, None)
        try:
            await readable
        finally:
            loop.remove_reader(handle)
        part = os.read(handle, 65536)
        if not part:
            break
        received += part
    return received


def _environment() -> dict[str, str]:
    """What the keeper itself needs; runs get nothing of it."""
    names = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    # Symbols bound now are bound for all processes that the keeper forks.
    return {**kept, "LD_BIND_NOW": "1"}
