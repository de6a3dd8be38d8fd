"""Sessions of interpreters on Modal: a sandbox that only waits, with image, volume, secrets and
checkout, and the driver as a command in it.

Called through wiring by fleetctl/interpreter, on its one event loop. A sandbox that cannot be made
whole is ended before the error is raised; one whose maker died ends by its own timeout.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncIterator, Mapping
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import modal

from fleetctl.common.errors import FleetctlError, Refused, Unavailable
from fleetctl.providers.contract.sandbox_access import (
    DRIVER_COMMAND,
    EndSession,
    OpenSession,
    Session,
    SessionRequest,
)
from fleetctl.providers.modal.assets import modal_images
from fleetctl.providers.modal.assets.modal_images import ModalImages
from fleetctl.providers.modal.assets.modal_volumes import ModalVolumes, Secrets
from fleetctl.providers.modal.connection import modal_credentials
from fleetctl.providers.modal.connection.modal_connection import ModalConnection, import_sdk
from fleetctl.providers.modal.connection.modal_errors import (
    classify_error,
    retryable_call,
    sandbox_call,
)
from fleetctl.providers.modal.runs.modal_streams import ModalExecChannel
from fleetctl.providers.paths import jobs_dir, make_private
from fleetctl.providers.remote.sandboxes.exec_channel import (
    LAST_WORDS_CHARACTERS,
    LineSplitter,
    RemoteSession,
)
from fleetctl.providers.remote.service_calls import unless_throttled
from fleetctl.providers.sources.pinning import current_commit
from fleetctl.specs.blocks.template import Image, Source, Template, VolumeMount

ENDING_S = 5.0  # for Modal to report how a driver ended

DEFAULT_IMAGE = Image(python="3.12", pip=("numpy", "pandas"))
DRIVER_DIR = "/.fleetctl-driver"
WORKSPACE = "/root/workspace"
EMPTY_WORKSPACE = f"{WORKSPACE}/daytona-workspace"  # as the first programs of this sort had it
TAG = "fleetctl-interpreter"
PARENT_TAG = "fleetctl-parent"
CALL_S = 60.0
START_S = 300.0  # with all the time that Modal throttles
UPLOAD_S = 900.0
CLONE_S = 600.0
START_SLACK_S = 120.0  # for a sandbox to start and to clone
LATE_S = 5.0  # an answer that was lost, or is not waited for, may be of a request still on its way
LOOK_S = 0.2
LIFE_MAX_S = 86_400  # Modal ends every sandbox after a day
log = logging.getLogger(__name__)


async def open_session(home: Path, request: SessionRequest) -> Session:
    """Makes the sandbox of an interpreter and starts its driver. Raises Refused or Unavailable;
    then no sandbox is left.
    """
    if request.native.get("sandbox_spec") is not None:
        raise Refused(
            "`sandbox_spec` is an object of another provider, and this interpreter runs on `modal`",
            hint="use image, image_python_version and image_pip_packages",
        )
    sandbox, late = await unless_throttled(lambda: make_sandbox(home, request), patience_s=START_S)
    try:
        workspace = await unless_throttled(
            lambda: prepare_session(sandbox, request), patience_s=START_S
        )
        async with sandbox_call("the driver cannot be started", deadline_s=CALL_S):
            command = (*DRIVER_COMMAND, f"{DRIVER_DIR}/driver.py")
            process = await sandbox.exec.aio(
                *command, workdir=workspace or None, timeout=life_s(request)
            )
    except BaseException:
        await end_sandbox(sandbox)
        raise
    session = ModalSession(sandbox, process, lifetime_s=request.lifetime_s)
    session.place_root = request.place.mount_path if request.place else ""
    session.workspace = workspace
    session.committed_late = late
    return session


async def end_session(
    home: Path,
    name: str,
    native: Mapping[str, str],
) -> bool:
    """Ends a session, as contract/sandbox_access.py describes."""
    return await unless_throttled(lambda: end_named(home, name, native), patience_s=CALL_S)


class ModalSession(RemoteSession):
    def __init__(
        self,
        sandbox: modal.Sandbox,
        process: Any,
        *,
        lifetime_s: float,
    ) -> None:
        """process: the SDK's ContainerProcess that runs the driver."""
        super().__init__(lifetime_s=lifetime_s)
        self._sandbox = sandbox
        self._process = process
        self._talk = ModalExecChannel(process, deadline_s=CALL_S)
        self._errors = asyncio.create_task(self._hear_errors())

    async def send(self, line: str) -> None:
        await self._talk.send(line + "\n")

    async def lines(self) -> AsyncIterator[str]:
        splitter = LineSplitter()
        try:
            async for piece in self._talk.pieces():
                for line in splitter.take(piece):
                    yield line
        except ConnectionError as error:
            self._why = f"its stream was lost: {error}"
        await self._learn_why()

    async def reload(self) -> None:
        async with sandbox_call("the volumes cannot be reloaded", deadline_s=CALL_S):
            await self._sandbox.reload_volumes.aio()

    async def _end_sandbox(self) -> None:
        async with sandbox_call("the sandbox cannot be ended", deadline_s=CALL_S):
            await self._sandbox.terminate.aio(wait=True)
        self._errors.cancel()

    async def _hear_errors(self) -> None:
        """Keeps the end of the driver's standard error."""
        with contextlib.suppress(Exception):  # a lost stream is reported by `lines`
            async for piece in self._process.stderr:
                self._hear_error(piece)

    async def _learn_why(self) -> None:
        """Notes how the driver ended, as far as Modal reports it soon."""
        with contextlib.suppress(TimeoutError, Exception):
            async with asyncio.timeout(ENDING_S):
                self._process_ended(await self._process.wait.aio())


_: OpenSession = open_session
_end: EndSession = end_session


class _Apps(ModalConnection):
    """A connection whose app has the name that a program gave, in that program's process: how the
    SDK is set there is the program's affair. When Modal throttles, the SDK itself waits as Modal
    asks, unless MODAL_MAX_THROTTLE_WAIT limits it; then this connection does.
    """

    def __init__(self, app_name: str) -> None:
        super().__init__("interpreters")
        self.app_name = app_name

    async def _load_sdk(self) -> None:
        modal_credentials.check_file()
        await import_sdk()
        if not modal_credentials.token_location(self._account()):
            modal_credentials.reread_profile()  # somebody may have logged in since


class _Shared:
    """The objects that the sessions of an event loop share."""

    def __init__(self, home: Path) -> None:
        self.connections: dict[str, _Apps] = {}
        self.images = ModalImages(home / "modal")
        self.volumes = ModalVolumes()
        self.secrets = Secrets()
        self.with_driver: dict[tuple[str, str], modal.Image] = {}


_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Path, _Shared]] = WeakKeyDictionary()


async def make_sandbox(home: Path, request: SessionRequest) -> tuple[modal.Sandbox, str]:
    """A new sandbox of the order's name, and why its volume is committed only when that ends, or
    "". When it is not known what a request has made, or when the caller is cancelled, that is
    looked up and ended first.
    """
    shared = _shared_by(home)
    connection = _app_connection(shared, request.native)
    client = await connection.client()
    given = request.native.get("app")
    app = given if isinstance(given, modal.App) else await connection.app()
    template = _as_template(request)
    image = await _driver_image(
        home,
        shared,
        (client, app),
        request,
        template,
    )
    volumes: dict[str | PathLike[Any], Any] = {}
    volumes.update(await shared.volumes.mounts(client, template))
    late = await shared.volumes.committed_late(client, template)
    why = f"`{late[0]}` is of version 1, which Modal commits at that end alone" if late else ""
    named = await shared.secrets.named(client, request.secrets)
    own = [one for one in _as_list(request.native.get("secrets")) if isinstance(one, modal.Secret)]
    lives_s = life_s(request)
    what = "the interpreter's sandbox cannot be made"
    try:
        async with retryable_call(what, deadline_s=START_S):
            made = await modal.Sandbox.create.aio(
                "sleep",
                str(lives_s),
                app=app,
                client=client,
                name=request.name,
                tags={
                    TAG: request.name,
                    **({PARENT_TAG: request.parent} if request.parent else {}),
                },
                image=image,
                secrets=[*named, *own],
                volumes=volumes,
                timeout=lives_s,
            )
    except BaseException as error:
        cause = error.__cause__ or error
        if not isinstance(cause, Exception) or classify_error(cause, what) is None:
            await asyncio.shield(_end_by_name(client, app, request.name))
        raise
    return made, why


def _shared_by(home: Path) -> _Shared:
    homes = _shared.setdefault(asyncio.get_running_loop(), {})
    return homes.setdefault(home, _Shared(home))


def _app_connection(shared: _Shared, native: Mapping[str, object]) -> _Apps:
    app_name = str(native.get("app_name") or TAG)
    return shared.connections.setdefault(app_name, _Apps(app_name))


def _as_template(request: SessionRequest) -> Template:
    """The parts of an order that a template has as well."""
    place = request.place
    mounts: tuple[VolumeMount, ...] = ()
    if place is not None and place.volume is not None:
        mounts = (VolumeMount(name=place.volume, mount_path=place.mount_path),)
    source = (
        Source(git=request.repository, mount_path=_checkout_dir(request))
        if request.repository
        else None
    )
    image = request.image or DEFAULT_IMAGE
    return Template(
        python="pass",
        image=image,
        volumes=mounts,
        source=source,
    )


def _checkout_dir(request: SessionRequest) -> str:
    assert request.repository is not None
    name = Path(modal_images.source_directory(Source(git=request.repository))).name
    return f"{WORKSPACE}/{name}"


async def _driver_image(
    home: Path,
    shared: _Shared,
    at: tuple[modal.Client, modal.App],
    request: SessionRequest,
    template: Template,
) -> modal.Image:
    """The order's image with the driver in it."""
    client, app = at
    given = request.native.get("image")
    if isinstance(given, modal.Image):
        base = given.entrypoint([])
        async with retryable_call("the image cannot be built", deadline_s=UPLOAD_S):
            await base.build.aio(app)
    else:
        base = await _build_image(shared, at, template, jobs_dir(home, "modal") / "interpreters")
    digest = sha256(request.driver.encode()).hexdigest()[:16]
    known = shared.with_driver.get((base.object_id, digest))
    if known is None:
        known = modal_images.with_files(
            modal.Image.from_id(base.object_id, client=client),
            {
                DRIVER_DIR: modal_images.LocalDirectory(
                    _driver_directory(home, digest, request.driver)
                )
            },
        )
        async with retryable_call("the driver cannot be uploaded", deadline_s=UPLOAD_S):
            await known.build.aio(app)
        shared.with_driver[base.object_id, digest] = known
    return known


async def _build_image(
    shared: _Shared,
    at: tuple[modal.Client, modal.App],
    template: Template,
    job: Path,
) -> modal.Image:
    make_private(job)
    while True:
        try:
            return await shared.images.ready(*at, template, job)
        except Unavailable as error:
            if error.reason != "Building":
                raise
            log.info("the image is being built")


def _driver_directory(
    home: Path,
    digest: str,
    driver: str,
) -> Path:
    directory = make_private(home / "modal" / "drivers" / digest)
    path = directory / "driver.py"
    if not path.exists():
        temporary = directory.parent / f".{digest}.{id(driver)}"
        temporary.write_text(driver, encoding="utf-8")
        temporary.replace(path)
    return directory


async def prepare_session(sandbox: modal.Sandbox, request: SessionRequest) -> str:
    """Directories and the checkout; the directory that code works in, or ""."""
    if request.place is not None and request.place.volume is None:
        await _run_command(sandbox, ["mkdir", "-p", request.place.mount_path])
    if not request.workspace:
        return ""
    if request.repository is None:
        await _run_command(sandbox, ["mkdir", "-p", EMPTY_WORKSPACE])
        return EMPTY_WORKSPACE
    commit = await current_commit(request.repository)
    commands, place = modal_images.setup_commands(_as_template(request), commit)
    for command in commands:
        await _run_command(sandbox, command)
    return place or WORKSPACE


async def _run_command(sandbox: modal.Sandbox, argv: list[str]) -> None:
    """Runs a command in the sandbox. Raises Refused with the end of its standard error when it
    fails.
    """
    async with sandbox_call(f"`{argv[0]}` cannot be run in the sandbox", deadline_s=CLONE_S):
        process = await sandbox.exec.aio(*argv, timeout=int(CLONE_S))
        reply = await process.stderr.read.aio()
        code = await process.wait.aio()
    if code:
        last = " ".join(reply.split())[-LAST_WORDS_CHARACTERS:]
        raise Refused(
            f"`{argv[0]}` failed in the sandbox with exit code {code}: {last}",
            hint="check the repository, its ref, and the secret with its token",
        )


async def end_sandbox(sandbox: modal.Sandbox) -> None:
    """Ends the sandbox as far as that can be; its timeout is the net. Goes on when its caller is
    cancelled.
    """
    await asyncio.shield(_terminate_sandbox(sandbox))


async def _terminate_sandbox(sandbox: modal.Sandbox) -> None:
    with contextlib.suppress(FleetctlError):
        async with sandbox_call("the sandbox cannot be ended", deadline_s=CALL_S):
            await sandbox.terminate.aio(wait=True)


async def end_named(
    home: Path,
    name: str,
    native: Mapping[str, str],
) -> bool:
    """Ends it; returns whether there was one. Confirmed; raises Refused and Unavailable."""
    connection = _app_connection(_shared_by(home), native)
    client = await connection.client()
    try:
        async with retryable_call("the sandbox cannot be looked up", deadline_s=CALL_S):
            found = await modal.Sandbox.from_name.aio(connection.app_name, name, client=client)
    except modal.exception.NotFoundError:
        return False
    async with sandbox_call("the sandbox cannot be ended", deadline_s=CALL_S):
        await found.terminate.aio(wait=True)
    return True


async def _end_by_name(
    client: modal.Client,
    app: modal.App,
    name: str,
) -> None:
    """Ends the sandbox that a create has made, or will have in a moment: its request may still be
    on its way.
    """
    loop = asyncio.get_running_loop()
    until_s = loop.time() + LATE_S
    while True:
        try:
            async with retryable_call("the sandbox cannot be looked up", deadline_s=CALL_S):
                found = await modal.Sandbox.from_name.aio(app.name or "", name, client=client)
            return await _terminate_sandbox(found)
        except (FleetctlError, modal.exception.NotFoundError) as error:
            if loop.time() >= until_s:
                if isinstance(error, FleetctlError):
                    log.warning("sandbox not ended", extra={"sandbox": name, "error": str(error)})
                return None
        await asyncio.sleep(LOOK_S)


def life_s(request: SessionRequest) -> int:
    """The sandbox's life at Modal, which is the net under the session's own count."""
    return min(LIFE_MAX_S, math.ceil(request.lifetime_s + START_SLACK_S))


def _as_list(value: object) -> list[object]:
    if isinstance(value, list | tuple):
        return list(value)
    return []
