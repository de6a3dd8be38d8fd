"""Makes the sandboxes of interpreters at Daytona: snapshot, driver, volume, secrets and checkout.

Called by session.py alone. A sandbox that cannot be made whole is ended before the error is told.
"""

from __future__ import annotations

import asyncio
import logging
import math
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import daytona

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.providers.contract.session import SessionRequest
from fleetctl.providers.daytona.assets import sources
from fleetctl.providers.daytona.assets.images import Images
from fleetctl.providers.daytona.assets.volumes import Volumes
from fleetctl.providers.daytona.connection.client import Connection
from fleetctl.providers.daytona.connection.errors import asking
from fleetctl.providers.daytona.runs import outright
from fleetctl.providers.paths import jobs_dir, make_private
from fleetctl.providers.sources.pinning import current
from fleetctl.specs.blocks.template import Source, Template, VolumeMount

DRIVER = "/tmp/fleetctl-driver.py"  # noqa: S108 - in the sandbox, where nobody else is
EMPTY_WORKSPACE = "daytona-workspace"  # as the first programs of this sort had it
LABEL, PARENT_LABEL = "fleetctl-interpreter", "fleetctl-parent"
INTERPRETERS = "interpreters"  # in place of a store's id: they may have none
OTHERS = ("image", "app")  # objects of Modal's
CALL_S = 60.0
START_S = 300.0
UPLOAD_S = 300.0
START_SLACK_S = 600.0  # for a sandbox to start and to clone
log = logging.getLogger(__name__)


class Shared:
    """What the sessions of one event loop have in common; its connection lives as long as any."""

    def __init__(self, home: Path) -> None:
        self.connection = Connection()
        self.images = Images(home / "daytona", store=INTERPRETERS)
        self.volumes = Volumes()
        self._users = 0

    def join(self) -> None:
        self._users += 1

    async def leave(self) -> None:
        self._users -= 1
        if not self._users:
            await self.connection.close()


_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Path, Shared]] = WeakKeyDictionary()


def shared_by(home: Path) -> Shared:
    homes = _shared.setdefault(asyncio.get_running_loop(), {})
    return homes.setdefault(home, Shared(home))


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


async def make(home: Path, shared: Shared, request: SessionRequest) -> daytona.AsyncSandbox:
    """A new sandbox of the order's name."""
    client = await shared.connection.client()
    params = await _params(home, shared, client, request)
    what = "the interpreter's sandbox cannot be made"
    return await outright.make(client, params, what, deadline_s=START_S)


async def _params(
    home: Path, shared: Shared, client: daytona.AsyncDaytona, request: SessionRequest
) -> daytona.CreateSandboxFromSnapshotParams | daytona.CreateSandboxFromImageParams:
    """What the program's own spec says, and what we need of every sandbox."""
    params = _own_params(request.native.get("sandbox_spec"))
    if request.image is not None:
        template = Template(python="pass", image=request.image)
        params = daytona.CreateSandboxFromSnapshotParams(
            snapshot=await _built(home, shared, client, template)
        )
    ours: dict[str, Any] = {
        "name": request.name,
        "language": "python",
        "labels": {**(params.labels or {}), **_labels(request)},
        "auto_stop_interval": 0,
        "auto_delete_interval": 0,
        "ttl_minutes": math.ceil((request.lifetime_s + START_SLACK_S) / 60),
        "volumes": [*(params.volumes or []), *await _mounts(shared, client, request)],
    }
    if request.secrets:
        ours["secrets"] = {**(params.secrets or {}), **{name: name for name in request.secrets}}
    return params.model_copy(update=ours)


def _own_params(
    given: object,
) -> daytona.CreateSandboxFromSnapshotParams | daytona.CreateSandboxFromImageParams:
    own = daytona.CreateSandboxFromSnapshotParams | daytona.CreateSandboxFromImageParams
    if given is None:
        return daytona.CreateSandboxFromSnapshotParams()
    if isinstance(given, own):
        return given
    if isinstance(given, Mapping):
        if "image" in given:
            return daytona.CreateSandboxFromImageParams(**given)
        return daytona.CreateSandboxFromSnapshotParams(**given)
    raise Refused(
        f"sandbox_spec is a `{type(given).__name__}`",
        hint="pass daytona.CreateSandboxFromSnapshotParams, CreateSandboxFromImageParams or a dict",
    )


def _labels(request: SessionRequest) -> dict[str, str]:
    parent = {PARENT_LABEL: request.parent} if request.parent else {}
    return {LABEL: request.name, **parent}


async def _mounts(
    shared: Shared, client: daytona.AsyncDaytona, request: SessionRequest
) -> list[daytona.VolumeMount]:
    place = request.place
    if place is None or place.volume is None:
        return []
    mount = VolumeMount(name=place.volume, mount_path=place.mount_path)
    shared.volumes.forget(place.volume)  # sessions are few, and somebody may have deleted it
    return await shared.volumes.mounts(client, Template(python="pass", volumes=(mount,)))


async def _built(
    home: Path, shared: Shared, client: daytona.AsyncDaytona, template: Template
) -> str:
    job = make_private(jobs_dir(home, "daytona") / "interpreters")
    while True:
        try:
            return await shared.images.ready(client, template, job)
        except Unavailable as error:
            if error.reason != "Building":
                raise
            log.info("the image is being built")


async def prepare(home: Path, sandbox: daytona.AsyncSandbox, request: SessionRequest) -> str:
    """Directories, the checkout and the driver; the directory that code works in, or ""."""
    async with asking("the driver cannot be uploaded", deadline_s=UPLOAD_S):
        await sandbox.fs.upload_file(request.driver.encode(), DRIVER)
    if request.place is not None and request.place.volume is None:
        await _make_directory(sandbox, request.place.mount_path)
    if not request.workspace:
        return ""
    async with asking("the sandbox cannot be looked into", deadline_s=CALL_S):
        work_dir = (await sandbox.get_work_dir()).rstrip("/")
    if request.repository is None:
        workspace = f"{work_dir}/{sources.WORKSPACE}/{EMPTY_WORKSPACE}"
        await _make_directory(sandbox, workspace)
        return workspace
    source = Source(git=request.repository)
    place = sources.directory(source, work_dir)
    commit = await current(request.repository)
    job = jobs_dir(home, "daytona") / "interpreters"
    await sources.bring(sandbox, source, place, commit=commit, secrets={}, job=job)
    return place


async def _make_directory(sandbox: daytona.AsyncSandbox, path: str) -> None:
    async with asking(f"`{path}` cannot be made in the sandbox", deadline_s=CALL_S):
        answer = await sandbox.process.exec(f"mkdir -p {shlex.quote(path)} 2>&1")
    if answer.exit_code:
        raise Refused(
            f"`{path}` cannot be made in the sandbox: {answer.result.strip()}",
            hint="name a directory that the sandbox's user may make",
        )
