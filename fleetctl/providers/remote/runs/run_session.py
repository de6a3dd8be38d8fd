"""Sessions of interpreters, each a run and a driver (guest/driver/main.py) in its sandbox.

Called through wiring by fleetctl/interpreter, on its one event loop. The run is the provider's own:
so are its name, its tags, its adoption and its end. A DriverHost starts the driver itself, as a
command whose stream it keeps. Elsewhere an idle run keeps the driver, and a command beside it
carries the lines: a line that breaks is made again, and each side sends what the other has not
confirmed. Without a line for ALONE_S that run ends by itself.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import math
import zlib
from abc import abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable
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
from fleetctl.providers.remote.sandboxes.exec_channel import (
    ExecChannel,
    LineSplitter,
    RemoteSession,
)
from fleetctl.providers.remote.service_calls import unless_throttled
from fleetctl.providers.sources.pinning import current_commit
from fleetctl.specs.blocks.template import Image, Source, Template, VolumeMount

ALONE_S = 300.0  # that a driver lives without its host: a line that broke is made again before
START_S = 600.0  # for a slot to be free, and for the run to begin
GREET_S = 120.0  # from the run's begin to the first line of its holder
SLACK_S = 300.0  # of the run beyond the session, whose own clock ends it first
AGAIN_S, AGAIN_MAX_S = 0.1, 5.0  # until a line that broke is made again
CONFIRM_LINES = 64  # between two confirmations to the holder
END_S = 60.0  # to end a sandbox, while its caller waits
ENDING_S = 60.0  # for a provider to report how a driver ended
LATE_S = 5.0  # a create whose reply was lost, or is not awaited, may be still on its way
OWN_OPTIONS = ("image", "app", "secrets", "sandbox_spec")
NAMED = "named"  # beside OWN_OPTIONS: secrets that a provider keeps
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
    """The part of a backend that sessions need. session_options: those of OWN_OPTIONS and
    NAMED that it carries out.
    """

    session_options: tuple[str, ...]

    async def end_run(self, uid: str, run: str, *, within_s: float, handle: str = "") -> bool:
        """Ends the sandbox of a run at once, confirmed, and removes its files here. Returns whether
        there was one. handle: where it is known. Raises Unavailable.
        """
        ...

    async def discard_run(self, uid: str, run: str, *, late_s: float) -> None:
        """Ends the sandbox of a run whose start failed, as far as possible: its own life is the
        net. late_s: seconds to look out for one that is not there yet.
        """
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class SessionDriver:
    """A driver that has been started in a run's sandbox. channel: its streams; place_root,
    workspace and committed_late: as of a Session.

    explain_loss: returns why a stream that broke does not go on; "" where it may. exit_code: once
    its output has ended; None while it is unknown. reload: as of a Session.
    """

    channel: ExecChannel
    workspace: str
    explain_loss: Callable[[ConnectionError], Awaitable[str]]
    exit_code: Callable[[], Awaitable[int | None]]
    reload: Callable[[], Awaitable[object]]
    place_root: str = ""
    committed_late: str = ""


@runtime_checkable
class AppHost(Protocol):
    """A backend whose sessions are in an app of a name that the program gives."""

    def use_app(self, name: str) -> None:
        """Puts sessions into this app. Called before anything else."""
        ...


@runtime_checkable
class DriverHost(Protocol):
    """A backend that starts drivers itself, in the sandbox that the first phase of a start made."""

    async def start_driver(
        self, request: RunRequest, hear_error: Callable[[str], None]
    ) -> SessionDriver:
        """Starts the driver of `request.session` in the sandbox `request.handle`. hear_error:
        called with pieces of its standard error. Raises Refused and Unavailable.
        """
        ...

    async def rest(self) -> None:
        """Closes what is not worth keeping open until the next session."""
        ...


class SessionProvider:
    """The connections that the sessions of an event loop at one account share; they live as long as
    any session. make: builds the backend, for the sandboxes of the store INTERPRETERS.
    """

    def __init__(
        self, make: Callable[[], SessionRuns], enter: Callable[[], Entering], app: str
    ) -> None:
        self._make = make
        self._app = app
        self._enter = enter
        self._users = 0
        self._runs: SessionRuns | None = None
        self._entering: Entering | None = None

    @property
    def runs(self) -> SessionRuns:
        if self._runs is None:
            self._runs = self._make()
            if self._app and isinstance(self._runs, AppHost):
                self._runs.use_app(self._app)
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
        if isinstance(self._runs, DriverHost):
            await self._runs.rest()  # what it knows of images serves the next session
            return
        runs, entering = self._runs, self._entering
        self._runs = self._entering = None
        if entering is not None:
            await entering.close()
        if runs is not None:
            await runs.close()


Parts = tuple[Callable[[], SessionRuns], Callable[[], Entering]]
SharedProviders = dict[tuple[Path, str, str], SessionProvider]
_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, SharedProviders] = WeakKeyDictionary()


def _share_provider(
    home: Path, account: str, parts: Parts, native: Mapping[str, object]
) -> SessionProvider:
    known = _shared.setdefault(asyncio.get_running_loop(), {})
    plain = known.setdefault((home, account, ""), SessionProvider(*parts, app=""))
    app = getattr(native.get("app"), "name", None) or native.get("app_name")
    if not isinstance(plain.runs, AppHost) or not isinstance(app, str):
        return plain
    return known.setdefault((home, account, app), SessionProvider(*parts, app=app))


async def open_session(
    home: Path, request: SessionRequest, *, account: str, parts: Parts
) -> Session:
    """Begins the run of a session and connects to its driver; see contract/sandbox_access.py.
    account: the name of the provider; parts: of a SessionProvider.
    """
    provider = _share_provider(home, account, parts, request.native)
    _refuse_other_options(request, account, provider.runs.session_options)
    kind: type[RunSession]
    if isinstance(provider.runs, DriverHost):
        kind, order = DriverSession, _driver_request(request)
    else:
        kind, order = HolderSession, _holder_request(await _pin_repository(request))
    provider.join()
    session = None
    try:
        handle = await _start_run(provider.runs, order)
        session = kind(provider, replace(order, handle=handle), request.lifetime_s)
        await session.ready()
    except BaseException as error:
        if session is not None:
            await session.abandon()
        certain = isinstance(error, FleetctlError) and not getattr(error, "perhaps_made", False)
        late_s = 0.0 if certain else LATE_S
        discard = provider.runs.discard_run(order.uid, order.run, late_s=late_s)
        await asyncio.shield(asyncio.ensure_future(discard))
        await provider.leave()
        raise
    return session


async def end_session(
    home: Path, name: str, native: Mapping[str, str], *, account: str, parts: Parts
) -> bool:
    """Ends a session, as contract/sandbox_access.py describes."""
    provider = _share_provider(home, account, parts, native)
    provider.join()
    try:
        return await provider.runs.end_run(INTERPRETERS, name, within_s=END_S)
    finally:
        await provider.leave()


def _refuse_other_options(request: SessionRequest, account: str, known: tuple[str, ...]) -> None:
    for name in OWN_OPTIONS:
        if name in known or _names_image(request, name):
            continue
        if request.native.get(name) is not None:
            raise Refused(
                f"`{name}` is an object of another provider, and this interpreter runs on"
                f" `{account}`",
                hint="use image_python_version, image_pip_packages and secrets={'NAME': 'value'}",
            )
    if request.secrets and NAMED not in known:
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


def _holder_request(request: SessionRequest) -> RunRequest:
    """Returns the request of an idle run that keeps the session's driver."""
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
    program = _PROGRAM.format(driver=driver, given=json.dumps(given))
    return _run_request(request, program, life_s=request.lifetime_s + SLACK_S)


def _driver_request(request: SessionRequest) -> RunRequest:
    """Returns the request of a run whose provider starts the session's driver."""
    return _run_request(request, "pass", life_s=request.lifetime_s)


def _run_request(request: SessionRequest, program: str, *, life_s: float) -> RunRequest:
    place = request.place
    volumes: tuple[VolumeMount, ...] = ()
    if place is not None and place.volume is not None:
        volumes = (VolumeMount(name=place.volume, mount_path=place.mount_path),)
    template = Template(
        python=program,
        image=_image_of(request),
        volumes=volumes,
        source=Source(git=request.repository) if request.repository is not None else None,
        timeout_seconds=math.ceil(life_s),
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
        session=request,
    )


def _image_of(request: SessionRequest) -> Image | None:
    reference = request.native.get("image")
    if not isinstance(reference, str):
        return request.image
    return (request.image or Image()).model_copy(update={"registry": reference})


async def _start_run(runs: SessionRuns, order: RunRequest) -> str:
    """Returns the handle of the run's sandbox. Raises Refused, and Unavailable where no slot was
    free in time.
    """
    loop = asyncio.get_running_loop()
    until_s = loop.time() + START_S
    while True:
        try:
            return await unless_throttled(lambda: runs.start(order), patience_s=START_S)
        except Unavailable as error:
            if error.reason not in ("Queued", "Building") or loop.time() > until_s:
                raise
        except TimeoutError as error:
            what = f"the sandbox of run `{order.run}` was not made in time"
            raise Unavailable(what, perhaps_made=True) from error
        await asyncio.sleep(AGAIN_S)


class RunSession(RemoteSession):
    """A session in the run `order`, whose sandbox is there."""

    def __init__(self, provider: SessionProvider, order: RunRequest, lifetime_s: float) -> None:
        super().__init__(lifetime_s=lifetime_s + GREET_S)
        self._lifetime_s = lifetime_s
        self._provider = provider
        self._order = order
        self._joined = True

    @abstractmethod
    async def ready(self) -> None:
        """Waits for the driver to begin. Raises Refused and Unavailable."""

    async def abandon(self) -> None:
        """Stops the session's own work here, without its sandbox."""
        self._age.cancel()

    def _count_age(self) -> None:
        """Counts the lifetime from now."""
        self._age.cancel()
        self._age = asyncio.create_task(self._end_after(self._lifetime_s))

    async def _end_sandbox(self) -> None:
        order = self._order
        await self._provider.runs.end_run(order.uid, order.run, within_s=END_S, handle=order.handle)
        if self._joined:
            self._joined = False
            await self._provider.leave()


class DriverSession(RunSession):
    """A session whose driver is a command in the sandbox, started by a DriverHost."""

    _driver: SessionDriver

    async def ready(self) -> None:
        host = self._provider.runs
        assert isinstance(host, DriverHost)
        self._driver = await unless_throttled(
            lambda: host.start_driver(self._order, self._hear_error), patience_s=START_S
        )
        self.place_root, self.workspace = self._driver.place_root, self._driver.workspace
        self.committed_late = self._driver.committed_late
        self._count_age()

    async def send(self, line: str) -> None:
        await self._driver.channel.send(line + "\n")

    async def lines(self) -> AsyncIterator[str]:
        again_s = AGAIN_S
        splitter = LineSplitter()
        while True:
            fresh = False
            try:
                async with contextlib.aclosing(self._driver.channel.pieces()) as pieces:
                    async for piece in pieces:
                        fresh = True
                        for line in splitter.take(piece):
                            yield line
                break  # the driver has ended
            except ConnectionError as error:
                if why := await self._driver.explain_loss(error):
                    self._why = self._why or why
                    break
            again_s = AGAIN_S if fresh else min(2 * again_s, AGAIN_MAX_S)
            await asyncio.sleep(again_s)
        await self._learn_why()

    async def reload(self) -> None:
        await self._driver.reload()

    async def _learn_why(self) -> None:
        """Notes how the driver ended, as far as its provider reports it soon."""
        with contextlib.suppress(Exception):  # an SDK's errors share no class
            async with asyncio.timeout(ENDING_S):
                code = await self._driver.exit_code()
                if code is not None:
                    self._process_ended(code)


class HolderSession(RunSession):
    """A session whose driver is kept by an idle run."""

    def __init__(self, provider: SessionProvider, order: RunRequest, lifetime_s: float) -> None:
        super().__init__(provider, order, lifetime_s)
        self._target = ExecTarget(order.run, order.sandbox, order.handle)
        self._sent: deque[bytes] = deque()  # lines that the holder has not confirmed
        self._confirmed = 0  # lines before those
        self._got = 0
        self._heard: asyncio.Queue[str | None] = asyncio.Queue()
        self._greeted = asyncio.Event()
        self._over = False
        self._connection = SessionConnection(self._take)
        self._keeping: asyncio.Task[None] | None = None

    async def ready(self) -> None:
        """Begins the run, and waits for the first line of its holder."""
        await self._provider.runs.start(self._order)
        self._keeping = asyncio.create_task(self._keep_line())
        greeted = asyncio.create_task(self._greeted.wait())
        await asyncio.wait({greeted, self._keeping}, timeout=GREET_S, return_when="FIRST_COMPLETED")
        greeted.cancel()
        if not self._greeted.is_set():
            why = self.ending() if self._over else f"it did not begin within {GREET_S:.0f} s"
            raise Unavailable(f"no driver can be reached: {await self._describe_run() or why}")
        self._count_age()

    async def abandon(self) -> None:
        await super().abandon()
        self._finish("it was stopped")
        if self._keeping is not None:
            await cancel_tasks([self._keeping])

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
        if self._keeping is not None:
            await cancel_tasks([self._keeping])
        await super()._end_sandbox()

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
