"""Sessions of interpreters on Daytona: a sandbox from a snapshot, with volume, secrets and
checkout, and the driver as a command of a session in it.

Called through wiring by fleetctl/interpreter, on its one event loop. A sandbox that cannot be made
whole is ended before the error is raised; one whose maker died ends by its TTL.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import shlex
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from fleetctl.common.errors import FleetctlError, Refused, Unavailable
from fleetctl.providers.contract.sandbox_access import (
    DRIVER_COMMAND,
    EndSession,
    OpenSession,
    Session,
    SessionRequest,
)
from fleetctl.providers.daytona.assets import daytona_source
from fleetctl.providers.daytona.assets.daytona_images import DaytonaImages
from fleetctl.providers.daytona.assets.daytona_volumes import DaytonaVolumes
from fleetctl.providers.daytona.connection import sdk
from fleetctl.providers.daytona.connection.daytona_connection import DaytonaConnection
from fleetctl.providers.daytona.connection.daytona_errors import is_not_found, retryable_call
from fleetctl.providers.daytona.runs import daytona_endings, daytona_streams
from fleetctl.providers.daytona.runs.daytona_endings import (
    discard_sandbox,
    end_by_name,
    end_sandbox,
    is_over,
    state_of,
)
from fleetctl.providers.paths import jobs_dir, make_private
from fleetctl.providers.remote.sandboxes.exec_channel import LineSplitter, RemoteSession
from fleetctl.providers.remote.service_calls import unless_throttled
from fleetctl.providers.sources.pinning import current_commit
from fleetctl.specs.blocks.template import Source, Template, VolumeMount

NAME = "driver"  # of the session in the sandbox
AGAIN_S, AGAIN_MAX_S = 0.1, 5.0  # until a stream that dropped is opened again

DRIVER = "/tmp/fleetctl-driver.py"  # in the sandbox, which has no other user
EMPTY_WORKSPACE = "daytona-workspace"  # as the first programs of this sort had it
LABEL = "fleetctl-interpreter"
PARENT_LABEL = "fleetctl-parent"
INTERPRETERS = "interpreters"  # instead of a store's id: they may have none
OTHERS = ("image", "app")  # objects of Modal's
CALL_S = 60.0
START_S = 300.0
UPLOAD_S = 300.0
START_SLACK_S = 600.0  # for a sandbox to start and to clone
log = logging.getLogger(__name__)


async def open_session(home: Path, request: SessionRequest) -> Session:
    """Makes the sandbox of an interpreter and starts its driver. Raises Refused or Unavailable;
    then no sandbox is left.
    """
    refuse_what_is_not_ours(request)
    shared = shared_by(home)
    shared.join()
    try:
        sandbox = await unless_throttled(
            lambda: make_sandbox(home, shared, request), patience_s=START_S
        )
        try:
            workspace = await unless_throttled(
                lambda: prepare_session(home, sandbox, request), patience_s=START_S
            )
            command = await _start_driver(sandbox, workspace)
        except BaseException:
            await discard_sandbox(await shared.connection.client(), sandbox.id)
            raise
    except BaseException:
        await shared.leave()
        raise
    session = DaytonaSession(shared, sandbox, command, lifetime_s=request.lifetime_s)
    session.place_root = request.place.mount_path if request.place else ""
    session.workspace = workspace
    return session


async def end_session(home: Path, name: str, native: Mapping[str, str]) -> bool:
    """Ends a session, as contract/sandbox_access.py describes."""
    shared = shared_by(home)
    shared.join()
    try:
        client = await shared.connection.client()
        return await unless_throttled(lambda: end_by_name(client, name), patience_s=CALL_S)
    finally:
        await shared.leave()


async def _start_driver(sandbox: sdk.AsyncSandbox, workspace: str) -> str:
    """The id of its command."""

    async def opened() -> None:
        async with retryable_call("the driver cannot be started", deadline_s=CALL_S):
            await sandbox.process.create_session(NAME)

    async def begun() -> str:
        async with retryable_call("the driver cannot be started", deadline_s=CALL_S):
            return await daytona_streams.begin_channel_command(
                sandbox, NAME, (*DRIVER_COMMAND, DRIVER), directory=workspace
            )

    await unless_throttled(opened, patience_s=CALL_S)
    return await unless_throttled(begun, patience_s=CALL_S)


class DaytonaSession(RemoteSession):
    def __init__(
        self,
        shared: DaytonaShared,
        sandbox: sdk.AsyncSandbox,
        command: str,
        *,
        lifetime_s: float,
    ) -> None:
        super().__init__(lifetime_s=lifetime_s)
        self._shared = shared
        self._sandbox = sandbox
        self._command = command
        self._talk = daytona_streams.DaytonaExecChannel(
            sandbox,
            NAME,
            command,
            deadline_s=CALL_S,
            hear_error=self._hear_error,
        )

    async def send(self, line: str) -> None:
        await self._talk.send(line + "\n")

    async def lines(self) -> AsyncIterator[str]:
        again_s = AGAIN_S
        splitter = LineSplitter()
        while True:
            before = self._talk.heard
            try:
                async with contextlib.aclosing(self._talk.pieces()) as fresh:
                    async for piece in fresh:
                        for line in splitter.take(piece):
                            yield line
                break  # the command has ended
            except ConnectionError as error:
                if await self._is_over(error):
                    break
            again_s = AGAIN_S if self._talk.heard > before else min(2 * again_s, AGAIN_MAX_S)
            await asyncio.sleep(again_s)
        await self._learn_why()

    async def reload(self) -> None:
        """Volumes show what others wrote as soon as it is there."""

    async def _end_sandbox(self) -> None:
        await end_sandbox(await self._shared.connection.client(), self._sandbox, deadline_s=CALL_S)
        await self._shared.leave()

    async def _is_over(self, error: ConnectionError) -> bool:
        """Returns whether a stream broke because there is no more output."""
        client = await self._shared.connection.client()
        try:
            async with retryable_call("the sandbox cannot be looked up", deadline_s=CALL_S):
                found = await client.get(self._sandbox.id)
        except FleetctlError:
            return False  # still unknown; the next stream shows it
        except sdk.DaytonaNotFoundError as missing:
            if not is_not_found(missing):
                raise
            return True
        if not is_over(state_of(found)):
            return False
        self._why = self._why or f"its sandbox is `{state_of(found)}`: {error}"
        return True

    async def _learn_why(self) -> None:
        """Notes how the driver ended, as far as Daytona still reports it."""
        with contextlib.suppress(Exception):
            async with asyncio.timeout(CALL_S):
                ended = await self._sandbox.process.get_session_command(NAME, self._command)
                if ended.exit_code is not None:
                    self._process_ended(int(ended.exit_code))


_: OpenSession = open_session
_end: EndSession = end_session


class DaytonaShared:
    """The objects that the sessions of an event loop share; the connection lives as long as any
    session.
    """

    def __init__(self, home: Path) -> None:
        self.connection = DaytonaConnection()
        self.images = DaytonaImages(home / "daytona", store=INTERPRETERS)
        self.volumes = DaytonaVolumes()
        self._users = 0

    def join(self) -> None:
        self._users += 1

    async def leave(self) -> None:
        self._users -= 1
        if not self._users:
            await self.connection.close()


_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Path, DaytonaShared]] = (
    WeakKeyDictionary()
)


def shared_by(home: Path) -> DaytonaShared:
    homes = _shared.setdefault(asyncio.get_running_loop(), {})
    return homes.setdefault(home, DaytonaShared(home))


def refuse_what_is_not_ours(request: SessionRequest) -> None:
    for name in OTHERS:
        if request.native.get(name) is not None:
            raise Refused(
                f"`{name}` is an object of another provider, and this interpreter runs on"
                " `daytona`",
                hint="use image_python_version, image_pip_packages or sandbox_spec",
            )
    if request.native.get("secrets") is not None:
        raise Refused(
            "`secrets` has objects of another provider, and this interpreter runs on `daytona`",
            hint="pass the values: secrets={'NAME': os.environ['NAME']}",
        )


async def make_sandbox(
    home: Path,
    shared: DaytonaShared,
    request: SessionRequest,
) -> sdk.AsyncSandbox:
    """A new sandbox of the order's name."""
    client = await shared.connection.client()
    params = await _sandbox_params(home, shared, client, request)
    what = "the interpreter's sandbox cannot be made"
    return await daytona_endings.make_single(client, params, what, deadline_s=START_S)


async def _sandbox_params(
    home: Path,
    shared: DaytonaShared,
    client: sdk.AsyncDaytona,
    request: SessionRequest,
) -> sdk.CreateSandboxFromSnapshotParams | sdk.CreateSandboxFromImageParams:
    """Returns the parameters of the program's own spec, with those that we need for every
    sandbox.
    """
    params = _own_params(request.native.get("sandbox_spec"))
    if request.image is not None:
        template = Template(python="pass", image=request.image)
        params = sdk.CreateSandboxFromSnapshotParams(
            snapshot=await _build_snapshot(home, shared, client, template)
        )
    ours: dict[str, Any] = {
        "name": request.name,
        "language": "python",
        "labels": {**(params.labels or {}), **_sandbox_labels(request)},
        "auto_stop_interval": 0,
        "auto_delete_interval": 0,
        "ttl_minutes": math.ceil((request.lifetime_s + START_SLACK_S) / 60),
        "volumes": [*(params.volumes or []), *await _volume_mounts(shared, client, request)],
    }
    if request.secrets:
        ours["secrets"] = {**(params.secrets or {}), **{name: name for name in request.secrets}}
    return params.model_copy(update=ours)


def _own_params(
    given: object,
) -> sdk.CreateSandboxFromSnapshotParams | sdk.CreateSandboxFromImageParams:
    own = sdk.CreateSandboxFromSnapshotParams | sdk.CreateSandboxFromImageParams
    if given is None:
        return sdk.CreateSandboxFromSnapshotParams()
    if isinstance(given, own):
        return given
    if isinstance(given, Mapping):
        if "image" in given:
            return sdk.CreateSandboxFromImageParams(**given)
        return sdk.CreateSandboxFromSnapshotParams(**given)
    raise Refused(
        f"sandbox_spec is a `{type(given).__name__}`",
        hint="pass sdk.CreateSandboxFromSnapshotParams, CreateSandboxFromImageParams or a dict",
    )


def _sandbox_labels(request: SessionRequest) -> dict[str, str]:
    parent = {PARENT_LABEL: request.parent} if request.parent else {}
    return {LABEL: request.name, **parent}


async def _volume_mounts(
    shared: DaytonaShared,
    client: sdk.AsyncDaytona,
    request: SessionRequest,
) -> list[sdk.VolumeMount]:
    place = request.place
    if place is None or place.volume is None:
        return []
    mount = VolumeMount(name=place.volume, mount_path=place.mount_path)
    shared.volumes.forget(place.volume)  # sessions are few, and somebody may have deleted it
    return await shared.volumes.mounts(client, Template(python="pass", volumes=(mount,)))


async def _build_snapshot(
    home: Path,
    shared: DaytonaShared,
    client: sdk.AsyncDaytona,
    template: Template,
) -> str:
    job = make_private(jobs_dir(home, "daytona") / "interpreters")
    while True:
        try:
            return await shared.images.ready(client, template, job)
        except Unavailable as error:
            if error.reason != "Building":
                raise
            log.info("the image is being built")


async def prepare_session(
    home: Path,
    sandbox: sdk.AsyncSandbox,
    request: SessionRequest,
) -> str:
    """Directories, the checkout and the driver; the directory that code works in, or ""."""
    async with retryable_call("the driver cannot be uploaded", deadline_s=UPLOAD_S):
        await sandbox.fs.upload_file(request.driver.encode(), DRIVER)
    if request.place is not None and request.place.volume is None:
        await _make_directory(sandbox, request.place.mount_path)
    if not request.workspace:
        return ""
    async with retryable_call("the sandbox cannot be looked into", deadline_s=CALL_S):
        work_dir = (await sandbox.get_work_dir()).rstrip("/")
    if request.repository is None:
        workspace = f"{work_dir}/{daytona_source.WORKSPACE}/{EMPTY_WORKSPACE}"
        await _make_directory(sandbox, workspace)
        return workspace
    source = Source(git=request.repository)
    place = daytona_source.source_directory(source, work_dir)
    commit = await current_commit(request.repository)
    job = jobs_dir(home, "daytona") / "interpreters"
    await daytona_source.bring_source(
        sandbox,
        source,
        place,
        commit=commit,
        secrets={},
        job=job,
    )
    return place


async def _make_directory(sandbox: sdk.AsyncSandbox, path: str) -> None:
    async with retryable_call(f"`{path}` cannot be made in the sandbox", deadline_s=CALL_S):
        answer = await sandbox.process.exec(f"mkdir -p {shlex.quote(path)} 2>&1")
    if answer.exit_code:
        raise Refused(
            f"`{path}` cannot be made in the sandbox: {answer.result.strip()}",
            hint="name a directory that the sandbox's user may make",
        )
