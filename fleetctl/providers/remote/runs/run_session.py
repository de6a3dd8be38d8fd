"""Sessions of interpreters where a provider has no sessions of its own: an idle run that keeps a
driver (guest/driver/main.py), and a command beside it that carries the driver's lines.

Called through wiring by fleetctl/interpreter, on its one event loop. The run is the provider's own:
so are its name, its tags, its adoption and its end. A line that breaks is made again, and each side
sends what the other has not confirmed. Without a line for ALONE_S the run ends by itself.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import math
import zlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from fleetctl.common.errors import FleetctlError, Refused, Unavailable
from fleetctl.common.event_loop import cancel_tasks
from fleetctl.controllers.model import Ended
from fleetctl.providers.contract.base import RunProvider, RunRef, RunRequest
from fleetctl.providers.contract.orphans import INTERPRETERS
from fleetctl.providers.contract.sandbox_access import (
    Entering,
    ExecStreams,
    ExecTarget,
    Session,
    SessionRequest,
)
from fleetctl.providers.remote.sandboxes.exec_channel import LineSplitter, RemoteSession
from fleetctl.providers.sources.pinning import current_commit
from fleetctl.specs.blocks.template import Image, Source, Template, VolumeMount

ALONE_S = 300.0  # that a driver lives without its host: a line that broke is made again before
START_S = 600.0  # for a slot to be free, and for the run to begin
GREET_S = 120.0  # from the run's begin to the first line of its holder
SLACK_S = 300.0  # of the run beyond the session, whose own clock ends it first
AGAIN_S, AGAIN_MAX_S = 0.1, 5.0  # until a line that broke is made again
CONFIRM_LINES = 64  # between two confirmations to the holder
CLOSE_S = 5.0
NATIVE_REFUSED = ("image", "app", "secrets", "sandbox_spec")
# Under its home, which a command beside it finds as well; nothing there is in the code's directory.
_PROGRAM = """
import base64, json, os, zlib
top = os.path.expanduser("~/.fleetctl-driver")
os.makedirs(top, 0o700, exist_ok=True)
program = os.path.join(top, "driver.py")
source = zlib.decompress(base64.b64decode("{driver}")).decode()
with open(program, "w", encoding="utf-8") as file:
    file.write(source)
given = json.loads({given!r})
facts = {{"root": given["root"], "workspace": ""}}
if given["fresh"]:
    facts["root"] = os.path.join(os.path.dirname(top), "memory")
    os.makedirs(facts["root"], exist_ok=True)
if given["workspace"]:
    facts["workspace"] = os.path.abspath(given["directory"])
    os.makedirs(facts["workspace"], exist_ok=True)
import sys
os.symlink(sys.executable, os.path.join(top, "python"))
names = {{"__name__": "fleetctl_driver", "__file__": program}}
exec(compile(source, program, "exec"), names)
names["hold_driver"](top, program, facts, given["alone_s"])
"""
_CONNECT = """
top=$HOME/.fleetctl-driver looks=0
until [ -S "$top/line" ]; do
    looks=$((looks + 1))
    [ "$looks" -lt 600 ] || exit 1
    sleep 0.1
done
exec "$top/python" -X utf8 -u "$top/driver.py" connect "$top"
"""


class SessionRuns(RunProvider, Protocol):
    """The part of a backend that sessions need."""

    async def end_run(self, uid: str, run: str, *, within_s: float) -> bool:
        """Ends the sandbox of a run at once, confirmed, and removes its files here. Returns whether
        there was one. Raises Unavailable.
        """
        ...

    async def close(self) -> None: ...


class SessionProvider:
    """The connections that the sessions of an event loop at one account share; they live as long as
    any session. make: builds the backend, for the sandboxes of the store INTERPRETERS.
    """

    def __init__(self, make: Callable[[], SessionRuns], enter: Callable[[], Entering]) -> None:
        self._make = make
        self._enter = enter
        self._users = 0
        self._runs: SessionRuns | None = None
        self._entering: Entering | None = None

    @property
    def runs(self) -> SessionRuns:
        self._runs = self._runs or self._make()
        return self._runs

    @property
    def entering(self) -> Entering:
        self._entering = self._entering or self._enter()
        return self._entering

    def join(self) -> None:
        self._users += 1

    async def leave(self) -> None:
        self._users -= 1
        if self._users:
            return
        runs, entering = self._runs, self._entering
        self._runs = self._entering = None
        if entering is not None:
            await entering.close()
        if runs is not None:
            await runs.close()


Parts = tuple[Callable[[], SessionRuns], Callable[[], Entering]]
_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[Path, str], SessionProvider]] = (
    WeakKeyDictionary()
)


def _share_provider(home: Path, account: str, parts: Parts) -> SessionProvider:
    known = _shared.setdefault(asyncio.get_running_loop(), {})
    return known.setdefault((home, account), SessionProvider(*parts))


async def open_session(
    home: Path, request: SessionRequest, *, account: str, parts: Parts
) -> Session:
    """Begins the run of a session and connects to its driver; see contract/sandbox_access.py.
    account: the name of the provider; parts: of a SessionProvider.
    """
    _refuse_other_options(request, account)
    order = _run_request(await _pin_repository(request))
    provider = _share_provider(home, account, parts)
    provider.join()
    session = None
    try:
        handle = await _start_run(provider.runs, order)
        session = RunSession(provider, order, handle, lifetime_s=request.lifetime_s)
        await session.ready()
    except BaseException:
        if session is not None:
            await session.stop()
        else:
            await _end_quietly(provider, order)
        raise
    return session


async def end_session(
    home: Path, name: str, native: Mapping[str, str], *, account: str, parts: Parts
) -> bool:
    """Ends a session, as contract/sandbox_access.py describes."""
    del native
    provider = _share_provider(home, account, parts)
    provider.join()
    try:
        return await provider.runs.end_run(INTERPRETERS, name, within_s=GREET_S)
    finally:
        await provider.leave()


def _refuse_other_options(request: SessionRequest, account: str) -> None:
    for name in NATIVE_REFUSED:
        if request.native.get(name) is not None and not _names_image(request, name):
            raise Refused(
                f"`{name}` is an object of another provider, and this interpreter runs on"
                f" `{account}`",
                hint="use image_python_version, image_pip_packages and secrets={'NAME': 'value'}",
            )
    if request.secrets:
        raise Refused(
            f"secret `{request.secrets[0]}` is kept by another provider, and this interpreter runs"
            f" on `{account}`",
            hint="pass the values: secrets={'NAME': os.environ['NAME']}",
        )


def _names_image(request: SessionRequest, option: str) -> bool:
    """Returns whether an option is the reference of an image of a registry."""
    return option == "image" and isinstance(request.native.get(option), str)


async def _pin_repository(request: SessionRequest) -> SessionRequest:
    """Returns the request with the commit that its ref names now. Raises Refused without one."""
    if request.repository is None:
        return request
    commit = await current_commit(request.repository)
    wanted = request.repository.model_copy(update={"ref": commit or request.repository.ref})
    return replace(request, repository=wanted)


def _run_request(request: SessionRequest) -> RunRequest:
    place = request.place
    mounted = place is not None and place.volume is not None
    given = {
        "root": place.mount_path if place is not None and mounted else "",
        "fresh": place is not None and not mounted,
        "workspace": request.workspace or request.repository is not None,
        # Work begins in the checkout, where there is one.
        "directory": "." if request.repository is not None else "workspace/daytona-workspace",
        "alone_s": ALONE_S,
    }
    driver = base64.b64encode(zlib.compress(request.driver.encode())).decode()
    volumes: tuple[VolumeMount, ...] = ()
    if place is not None and place.volume is not None:
        volumes = (VolumeMount(name=place.volume, mount_path=place.mount_path),)
    template = Template(
        python=_PROGRAM.format(driver=driver, given=json.dumps(given)),
        image=_image_of(request),
        volumes=volumes,
        source=Source(git=request.repository) if request.repository is not None else None,
        timeout_seconds=math.ceil(request.lifetime_s + SLACK_S),
    )
    return RunRequest(
        run=request.name,
        sandbox=request.name,
        owner=INTERPRETERS,
        uid=INTERPRETERS,
        resource=f"interpreter/{request.name}",
        index=0,
        attempt=1,
        template=template,
        template_hash="",
        params={},
        reusable=False,
        parent=request.parent,
    )


def _image_of(request: SessionRequest) -> Image | None:
    reference = request.native.get("image")
    if not isinstance(reference, str):
        return request.image
    return (request.image or Image()).model_copy(update={"registry": reference})


async def _start_run(runs: SessionRuns, order: RunRequest) -> str:
    """Returns the handle of the run, which has begun. Raises Refused, and Unavailable where no slot
    was free in time.
    """
    loop = asyncio.get_running_loop()
    until_s = loop.time() + START_S
    while True:
        try:
            handle = await runs.start(order)
            break
        except Unavailable as error:
            if error.reason != "Queued" or loop.time() > until_s:
                raise
    if runs.contract.two_phase:
        await runs.start(replace(order, handle=handle))
    return handle


async def _end_quietly(provider: SessionProvider, order: RunRequest) -> None:
    """Ends a run whose start failed, whose error is more informative than one of this."""
    with contextlib.suppress(FleetctlError):
        await provider.runs.end_run(order.uid, order.run, within_s=CLOSE_S)
    await provider.leave()


class RunSession(RemoteSession):
    """A session in the run `order`, which has begun."""

    def __init__(
        self, provider: SessionProvider, order: RunRequest, handle: str, *, lifetime_s: float
    ) -> None:
        super().__init__(lifetime_s=lifetime_s + GREET_S)
        self._lifetime_s = lifetime_s
        self._provider = provider
        self._order = order
        self._target = ExecTarget(order.run, order.sandbox, handle)
        self._sent: deque[bytes] = deque()  # lines that the holder has not confirmed
        self._confirmed = 0  # lines before those
        self._got = 0
        self._heard: asyncio.Queue[str | None] = asyncio.Queue()
        self._greeted = asyncio.Event()
        self._over = False
        self._joined = True
        self._connection = SessionConnection(self._take)
        self._keeping = asyncio.create_task(self._keep_line())

    async def ready(self) -> None:
        """Waits for the first line of the holder. Raises Unavailable."""
        greeted = asyncio.create_task(self._greeted.wait())
        await asyncio.wait({greeted, self._keeping}, timeout=GREET_S, return_when="FIRST_COMPLETED")
        greeted.cancel()
        if not self._greeted.is_set():
            why = self.ending() if self._over else f"it did not begin within {GREET_S:.0f} s"
            raise Unavailable(f"no driver can be reached: {await self._describe_run() or why}")
        self._age.cancel()
        self._age = asyncio.create_task(self._end_after(self._lifetime_s))

    async def send(self, line: str) -> None:
        if self._over:
            raise Unavailable(f"the session has ended: {self.ending()}")
        self._sent.append(line.encode("ascii"))
        self._connection.wake.set()

    async def lines(self) -> AsyncIterator[str]:
        while (line := await self._heard.get()) is not None:
            yield line

    async def reload(self) -> None:
        """Does no work: volumes are directories of the machine."""

    async def _describe_run(self) -> str:
        """Returns why its run ended; "" while that is unknown."""
        order, handle = self._order, self._target.handle
        ref = RunRef(order.run, order.sandbox, handle, 0, order.uid)
        with contextlib.suppress(FleetctlError):
            for seen in await self._provider.runs.observe([ref]):
                if isinstance(seen, Ended):
                    return seen.message
        return ""

    async def _end_sandbox(self) -> None:
        self._finish("it was stopped")
        await cancel_tasks([self._keeping])
        order = self._order
        await self._provider.runs.end_run(order.uid, order.run, within_s=GREET_S)
        if self._joined:
            self._joined = False
            await self._provider.leave()

    def _finish(self, why: str) -> None:
        if not self._over:
            self._over = True
            self._why = self._why or why
            self._heard.put_nowait(None)

    async def _keep_line(self) -> None:
        """Makes the line, and makes it again when it breaks, until the session is over."""
        again_s = AGAIN_S
        while not self._over:
            before = self._got
            connection = self._connection = SessionConnection(self._take)
            streams = ExecStreams(self._outgoing(connection), connection.receive, self._hear_bytes)
            argv = ("sh", "-c", _CONNECT)
            try:
                await self._provider.entering.execute(self._target, argv, streams)
            except Refused:
                self._finish("its run has ended")
            except Unavailable as error:
                self._last_words = str(error)
            if not self._over:
                again_s = AGAIN_S if self._got > before else min(2 * again_s, AGAIN_MAX_S)
                await asyncio.sleep(again_s)

    async def _outgoing(self, connection: SessionConnection) -> AsyncIterator[bytes]:
        """Yields what the holder is to get over one connection."""
        confirmed = self._got
        yield b"%d\n" % confirmed
        await connection.greeted.wait()
        number = self._confirmed
        while True:
            if self._got - confirmed >= CONFIRM_LINES:
                confirmed = self._got
                yield b"+%d\n" % confirmed
            number = max(number, self._confirmed)
            if number < self._confirmed + len(self._sent):
                yield b"=" + self._sent[number - self._confirmed] + b"\n"
                number += 1
                continue
            connection.wake.clear()
            await connection.wake.wait()

    def _take(self, connection: SessionConnection, line: str) -> None:
        """Takes a line of the holder."""
        if connection is not self._connection or self._over:
            return
        sort, text = line[0], line[1:]
        if not connection.greeted.is_set():
            greeting = json.loads(line)
            if not self._greeted.is_set():  # an adopted driver has lines of its earlier host
                self._confirmed = int(greeting["took"])
            self._confirm(int(greeting["took"]))
            self.place_root, self.workspace = str(greeting["root"]), str(greeting["workspace"])
            connection.greeted.set()
            self._greeted.set()
        elif sort == "=":
            self._got += 1
            self._heard.put_nowait(text)
        elif sort == "+":
            self._confirm(int(text))
        elif sort == "!":
            self._last_words = ""  # those of the driver are in the text
            self._finish(text)
        if self._got % CONFIRM_LINES == 0:
            connection.wake.set()

    def _confirm(self, count: int) -> None:
        while self._confirmed < count and self._sent:
            self._sent.popleft()
            self._confirmed += 1

    def _hear_bytes(self, data: bytes) -> None:
        self._hear_error(data.decode("utf-8", "replace"))


class SessionConnection:
    """One connection to the holder. take: called with each whole line that it sends."""

    def __init__(self, take: Callable[[SessionConnection, str], Any]) -> None:
        self._take = take
        self._splitter = LineSplitter()
        self.greeted = asyncio.Event()
        self.wake = asyncio.Event()

    def receive(self, data: bytes) -> None:
        for line in self._splitter.take(data.decode("ascii", "replace")):
            self._take(self, line)
