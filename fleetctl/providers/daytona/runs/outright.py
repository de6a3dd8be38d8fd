"""Makes a sandbox for who waits for it and nobody else: it is there whole, or not at all.

Called for interpreters and for files of volumes. A run's sandbox is made by creates.py, which
adopts what an earlier request has made; here it is ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.common.errors import Unavailable
from fleetctl.providers.daytona.connection.errors import asking, certain, is_of_the_sdk, words
from fleetctl.providers.daytona.runs.deletes import LATE_S, discard

if TYPE_CHECKING:
    import daytona

    Params = daytona.CreateSandboxFromSnapshotParams | daytona.CreateSandboxFromImageParams


async def make(
    client: daytona.AsyncDaytona, params: Params, what: str, *, deadline_s: float
) -> daytona.AsyncSandbox:
    """A started sandbox of the params' name, which no other has. Raises Refused and Unavailable.

    what: such as `the sandbox cannot be made`. When it is not known what a request has made, or
    when the caller is cancelled, that is looked up by its name and ended first.
    """
    assert params.name, "what has no name cannot be found again"
    try:
        async with asking(what, deadline_s=deadline_s):
            return await client.create(params, timeout=0)
    except BaseException as error:
        cause = error.__cause__ or error
        certain_error = certain(cause, what) if isinstance(cause, Exception) else None
        if certain_error is None:
            await discard(client, params.name, late_s=LATE_S)
        # What `asking` lets through is an answer elsewhere, and here a failure like any other.
        if error is not cause or not isinstance(error, Exception) or not is_of_the_sdk(error):
            raise
        raise certain_error or Unavailable(f"{what}: {words(error)}") from error
