"""The driver of an interpreter's session in a run's sandbox at Modal: a command there, which takes
the place of the guest; and the image, the app and the directories that only sessions have.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.common.errors import Refused
from fleetctl.providers.contract.base import RunRequest
from fleetctl.providers.contract.sandbox_access import DRIVER_COMMAND, SessionRequest
from fleetctl.providers.modal.assets import modal_images
from fleetctl.providers.modal.connection import modal_credentials
from fleetctl.providers.modal.connection.modal_connection import ModalConnection, import_sdk
from fleetctl.providers.modal.connection.modal_errors import retryable_call, sandbox_call
from fleetctl.providers.modal.runs.modal_streams import ModalExecChannel
from fleetctl.providers.paths import make_private
from fleetctl.providers.remote.runs.run_session import SessionDriver
from fleetctl.providers.remote.sandboxes.exec_channel import LAST_WORDS_CHARACTERS
from fleetctl.providers.sources.pinning import current_commit
from fleetctl.specs.blocks.template import Image, Source, Template

if TYPE_CHECKING:
    import modal

DEFAULT_IMAGE = Image(python="3.12", pip=("numpy", "pandas"))
DRIVER_DIR = "/.fleetctl-driver"
WORKSPACE = "/root/workspace"
EMPTY_WORKSPACE = f"{WORKSPACE}/daytona-workspace"  # as the first programs of this sort had it
ENDING_S = 5.0  # for Modal to report how a driver ended
CALL_S = 60.0
UPLOAD_S = 900.0
CLONE_S = 600.0
START_SLACK_S = 120.0  # for a sandbox to start and to clone


class ProgramConnection(ModalConnection):
    """A connection whose app has the name that a program gave, in that program's process: how the
    SDK is set there is the program's affair. When Modal throttles, the SDK itself waits as Modal
    asks, unless MODAL_MAX_THROTTLE_WAIT limits it; then this connection does.
    """

    async def _load_sdk(self) -> None:
        modal_credentials.check_file()
        await import_sdk()
        if not modal_credentials.token_location(self._account()):
            modal_credentials.reread_profile()  # somebody may have logged in since


def session_template(request: RunRequest) -> Template:
    """Returns the template of a session's run, with the image and the checkout of sessions."""
    template, source = request.template, request.template.source
    if source is not None:
        name = Path(modal_images.source_directory(source)).name
        source = Source(git=source.git, mount_path=f"{WORKSPACE}/{name}")
    image = template.image or DEFAULT_IMAGE
    return template.model_copy(update={"image": image, "source": source})


class DriverImages:
    """Images with the driver in them. home: the state directory's `modal`."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._known: dict[tuple[str, str], modal.Image] = {}

    async def ready(
        self, client: modal.Client, app: modal.App, base: modal.Image, request: SessionRequest
    ) -> modal.Image:
        """Returns the built image with the session's driver. base: a built one."""
        import modal

        digest = sha256(request.driver.encode()).hexdigest()[:16]
        known = self._known.get((base.object_id, digest))
        if known is None:
            path = self._write_driver(digest, request.driver)
            known = modal_images.with_files(
                modal.Image.from_id(base.object_id, client=client),
                {DRIVER_DIR: modal_images.LocalDirectory(path)},
            )
            async with retryable_call("the driver cannot be uploaded", deadline_s=UPLOAD_S):
                await known.build.aio(app)
            self._known[base.object_id, digest] = known
        return known

    def _write_driver(self, digest: str, driver: str) -> Path:
        directory = make_private(self._home / "drivers" / digest)
        path = directory / "driver.py"
        if not path.exists():
            temporary = directory.parent / f".{digest}.{id(driver)}"
            temporary.write_text(driver, encoding="utf-8")
            temporary.replace(path)
        return directory


async def build_given_image(image: modal.Image, app: modal.App) -> modal.Image:
    """Returns the program's own image, built."""
    base = image.entrypoint([])
    async with retryable_call("the image cannot be built", deadline_s=UPLOAD_S):
        await base.build.aio(app)
    return base


def life_s(request: RunRequest, *, cap_s: float) -> int:
    """Returns the sandbox's life at Modal, which is the net under the session's own count."""
    return int(min(cap_s, math.ceil((request.template.timeout_seconds or cap_s) + START_SLACK_S)))


async def start_driver(
    sandbox: modal.Sandbox,
    request: RunRequest,
    hear_error: Callable[[str], None],
    *,
    lives_s: int,
    late: str,
) -> SessionDriver:
    """Starts the driver of a session whose sandbox is made; see DriverHost. late: a volume that
    only the sandbox's end commits; "" without any.
    """
    assert request.session is not None
    place = request.session.place
    workspace = await _prepare_directories(sandbox, request)
    async with sandbox_call("the driver cannot be started", deadline_s=CALL_S):
        command = (*DRIVER_COMMAND, f"{DRIVER_DIR}/driver.py")
        process = await sandbox.exec.aio(*command, workdir=workspace or None, timeout=lives_s)

    async def hear_errors() -> None:
        """Sends on the driver's standard error until it ends."""
        with contextlib.suppress(Exception):  # a lost stream is reported by that of its output
            async for piece in process.stderr:
                hear_error(piece)

    hearing = asyncio.create_task(hear_errors())

    async def explain_loss(error: ConnectionError) -> str:
        return f"its stream was lost: {error}"

    async def exit_code() -> int | None:
        async with asyncio.timeout(ENDING_S):
            await asyncio.wait({hearing})
            return int(await process.wait.aio())

    async def reload() -> None:
        async with sandbox_call("the volumes cannot be reloaded", deadline_s=CALL_S):
            await sandbox.reload_volumes.aio()

    return SessionDriver(
        ModalExecChannel(process, deadline_s=CALL_S),
        workspace,
        explain_loss,
        exit_code,
        reload,
        place_root=place.mount_path if place is not None else "",
        committed_late=(
            f"`{late}` is of version 1, which Modal commits at that end alone" if late else ""
        ),
    )


async def _prepare_directories(sandbox: modal.Sandbox, request: RunRequest) -> str:
    """Makes directories and the checkout; returns the directory that code works in, or ""."""
    session = request.session
    assert session is not None
    if session.place is not None and session.place.volume is None:
        await _run_command(sandbox, ["mkdir", "-p", session.place.mount_path])
    if not session.workspace:
        return ""
    if session.repository is None:
        await _run_command(sandbox, ["mkdir", "-p", EMPTY_WORKSPACE])
        return EMPTY_WORKSPACE
    commit = await current_commit(session.repository)
    commands, place = modal_images.setup_commands(session_template(request), commit)
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
