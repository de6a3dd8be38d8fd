"""Makes a sandbox for one waiting caller: it is there whole, or not at all.

Called for interpreters and for files of volumes. A run's sandbox is made by daytona_creator.py,
which adopts the sandbox of an earlier request; here it is ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.common.errors import Unavailable
from fleetctl.providers.daytona.connection import sdk
from fleetctl.providers.daytona.connection.daytona_errors import (
    classify_error,
    error_words,
    is_of_the_sdk,
    retryable_call,
)
from fleetctl.providers.daytona.runs.sandbox_deletes import LATE_S, discard_sandbox

if TYPE_CHECKING:
    Params = sdk.CreateSandboxFromSnapshotParams | sdk.CreateSandboxFromImageParams


async def make_single(
    client: sdk.AsyncDaytona,
    params: Params,
    what: str,
    *,
    deadline_s: float,
) -> sdk.AsyncSandbox:
    """Returns a started sandbox with the unique name in params. Raises Refused and Unavailable.

    what: beginning of errors, such as `the sandbox cannot be made`. When the outcome of a request
    is unknown, or the caller is cancelled, a sandbox with this name is looked up and ended first.
    """
    assert params.name, "a sandbox without a name cannot be found again"
    try:
        async with retryable_call(what, deadline_s=deadline_s):
            return await client.create(params, timeout=0)
    except BaseException as error:
        cause = error.__cause__ or error
        certain_error = classify_error(cause, what) if isinstance(cause, Exception) else None
        if certain_error is None:
            await discard_sandbox(client, params.name, late_s=LATE_S)
        # Errors that `retryable_call` passes on are replies elsewhere, and failures here.
        if error is not cause or not isinstance(error, Exception) or not is_of_the_sdk(error):
            raise
        raise certain_error or Unavailable(f"{what}: {error_words(error)}") from error
