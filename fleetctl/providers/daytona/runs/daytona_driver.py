"""The driver of an interpreter's session in a run's sandbox at Daytona: a command of a session
there, which takes the place of the guest; and the program's own settings of that sandbox.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from fleetctl.common.errors import FleetctlError, Refused
from fleetctl.providers.contract.base import RunRequest
from fleetctl.providers.contract.sandbox_access import DRIVER_COMMAND, SessionRequest
from fleetctl.providers.daytona.connection import sdk
from fleetctl.providers.daytona.connection.daytona_errors import retryable_call
from fleetctl.providers.daytona.runs import daytona_streams
from fleetctl.providers.daytona.runs.daytona_endings import is_over, state_of
from fleetctl.providers.daytona.runs.daytona_sandboxes import DaytonaSandboxes
from fleetctl.providers.daytona.runs.daytona_streams import DaytonaExecChannel
from fleetctl.providers.remote.runs.run_session import SessionDriver

if TYPE_CHECKING:
    Params = sdk.CreateSandboxFromSnapshotParams | sdk.CreateSandboxFromImageParams

SESSION = "driver"  # in the sandbox
DRIVER = "/tmp/fleetctl-driver.py"  # in the sandbox, which has no other user
EMPTY_WORKSPACE = "workspace/daytona-workspace"  # as the first programs of this sort had it
START_SLACK_S = 600.0  # for a sandbox to start and to clone
CALL_S = 60.0
UPLOAD_S = 300.0


def sandbox_params(request: SessionRequest, snapshot: str, ours: Mapping[str, Any]) -> Params:
    """Returns the program's own settings of its sandbox, with those of every sandbox of ours.
    snapshot: of the session's image; "" without one.
    """
    own = _own_params(request.native.get("sandbox_spec"))
    if snapshot:
        own = sdk.CreateSandboxFromSnapshotParams(snapshot=snapshot)
    named = {name: name for name in request.secrets}
    both = {
        "labels": {**(own.labels or {}), **ours["labels"]},
        "volumes": [*(own.volumes or []), *ours["volumes"]],
        "secrets": {**(own.secrets or {}), **named} or None,
        "auto_delete_interval": 0,
    }
    return own.model_copy(update={**ours, **both})


def _own_params(given: object) -> Params:
    if given is None:
        return sdk.CreateSandboxFromSnapshotParams()
    if isinstance(given, sdk.CreateSandboxFromSnapshotParams | sdk.CreateSandboxFromImageParams):
        return given
    if isinstance(given, Mapping):
        if "image" in given:
            return sdk.CreateSandboxFromImageParams(**given)
        return sdk.CreateSandboxFromSnapshotParams(**given)
    raise Refused(
        f"sandbox_spec is a `{type(given).__name__}`",
        hint="pass sdk.CreateSandboxFromSnapshotParams, CreateSandboxFromImageParams or a dict",
    )


async def bring_driver(sandbox: sdk.AsyncSandbox, request: SessionRequest, workspace: str) -> None:
    """Puts the driver and its directories into a fresh sandbox; a checkout makes its own."""
    async with retryable_call("the driver cannot be uploaded", deadline_s=UPLOAD_S):
        await sandbox.fs.upload_file(request.driver.encode(), DRIVER)
    if request.place is not None and request.place.volume is None:
        await _make_directory(sandbox, request.place.mount_path)
    if workspace and request.repository is None:
        await _make_directory(sandbox, workspace)


async def _make_directory(sandbox: sdk.AsyncSandbox, path: str) -> None:
    async with retryable_call(f"`{path}` cannot be made in the sandbox", deadline_s=CALL_S):
        answer = await sandbox.process.exec(f"mkdir -p {shlex.quote(path)} 2>&1")
    if answer.exit_code:
        raise Refused(
            f"`{path}` cannot be made in the sandbox: {answer.result.strip()}",
            hint="name a directory that the sandbox's user may make",
        )


async def start_driver(
    sandboxes: DaytonaSandboxes,
    request: RunRequest,
    workspace: str,
    hear_error: Callable[[str], None],
) -> SessionDriver:
    """Starts the driver of a session whose sandbox is made; see DriverHost."""
    assert request.session is not None
    place = request.session.place
    sandbox = await sandboxes.living(request.handle)
    async with retryable_call("the driver cannot be started", deadline_s=CALL_S):
        await sandbox.process.create_session(SESSION)
        command = await daytona_streams.begin_channel_command(
            sandbox, SESSION, (*DRIVER_COMMAND, DRIVER), directory=workspace
        )

    async def explain_loss(error: ConnectionError) -> str:
        try:
            found = await sandboxes.get(sandbox.id)
        except FleetctlError:
            return ""  # still unknown; the next stream shows it
        if found is None:
            return "its sandbox ended"
        return f"its sandbox is `{state_of(found)}`: {error}" if is_over(state_of(found)) else ""

    async def exit_code() -> int | None:
        ended = await sandbox.process.get_session_command(SESSION, command)
        return None if ended.exit_code is None else int(ended.exit_code)

    async def reload() -> None:
        """Volumes show what others wrote as soon as it is there."""

    return SessionDriver(
        DaytonaExecChannel(sandbox, SESSION, command, deadline_s=CALL_S, hear_error=hear_error),
        workspace,
        explain_loss,
        exit_code,
        reload,
        place_root=place.mount_path if place is not None else "",
    )
