"""Ends sandboxes at Daytona, and checks that they are gone. No other module deletes any.

Called by all that have a sandbox: runs, interpreters, files of volumes, orphans. Daytona refuses to
delete a sandbox in the midst of a change, such as a start, so the delete is repeated.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import ThreadPoolExecutor

from fleetctl.common.errors import FleetctlError, Refused, Unavailable
from fleetctl.providers.daytona.connection import rest_api, sdk
from fleetctl.providers.daytona.connection.daytona_errors import (
    is_conflict,
    is_not_found,
    retryable_call,
)
from fleetctl.providers.daytona.runs.daytona_endings import GONE, state_of
from fleetctl.providers.remote.connection.tolerated_answer import ToleratedAnswer

BUSY_S, BUSY_MAX_S = 0.2, 5.0  # between two tries to delete
LOOK_S = 30.0
DISCARD_S = 120.0  # a start without a waiting caller has to end first
# A request whose answer was lost, or that was given up, may still be on its way.
LATE_S = 5.0
log = logging.getLogger("fleetctl.providers")


async def delete_sandbox(sandbox: sdk.AsyncSandbox) -> None:
    """Returns once it is destroyed, or was before. Raises the SDK's other errors.

    The deadline is the caller's: one of the SDK's costs a task of its own.
    """
    delay_s = BUSY_S
    while state_of(sandbox) != GONE:
        try:
            await sandbox.delete(timeout=0, wait=True)
        except Exception as error:  # also what an ending interpreter raises
            if is_not_found(error):
                return
            if not is_conflict(error):
                raise
        else:
            return
        await asyncio.sleep(delay_s)
        delay_s = min(2 * delay_s, BUSY_MAX_S)
        try:
            await sandbox.refresh_data()
        except Exception as error:  # also what an ending interpreter raises
            if is_not_found(error):
                return
            raise


async def end_sandbox(
    client: sdk.AsyncDaytona,
    sandbox: sdk.AsyncSandbox,
    *,
    deadline_s: float,
) -> None:
    """The same, also while this process exits. Raises Unavailable when it does not end in time."""
    if not _process_exits():
        try:
            async with retryable_call(
                f"sandbox `{sandbox.id}` cannot be ended", deadline_s=deadline_s
            ):
                await delete_sandbox(sandbox)
            return
        except Exception:  # also what an ending interpreter raises
            if not _process_exits():
                raise
    _end_while_exiting(client, sandbox.id)


async def discard_sandbox(
    client: sdk.AsyncDaytona,
    id_or_name: str,
    *,
    late_s: float = 0.0,
) -> None:
    """Ends a sandbox without further users, as far as possible: its TTL is the net. A cancelled
    caller waits as well: it is the only one that would.

    late_s: seconds to look out for a sandbox that is not there yet.
    """
    work = asyncio.ensure_future(_retry_discard(client, id_or_name, late_s))
    given_up: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError as error:
            given_up = error
    if given_up is not None:
        raise given_up
    work.result()


async def _retry_discard(
    client: sdk.AsyncDaytona,
    id_or_name: str,
    late_s: float,
) -> None:
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    while True:
        exits = _process_exits()
        pause_s = BUSY_S
        try:
            if await end_by_name(client, id_or_name) or loop.time() - began_s >= late_s:
                return
        except Exception as error:  # also what an ending interpreter raises
            if not exits and _process_exits():
                continue  # there is another way for that
            if not isinstance(error, FleetctlError):
                raise
            if isinstance(error, Refused) or exits or loop.time() - began_s >= DISCARD_S:
                extra = {"sandbox": id_or_name, "error": str(error)}
                log.warning("sandbox not ended", extra=extra)
                return
            if isinstance(error, Unavailable):
                pause_s = min(error.retry_after_s, BUSY_MAX_S)
        await asyncio.sleep(pause_s)


async def end_by_name(client: sdk.AsyncDaytona, id_or_name: str) -> bool:
    """Ends a sandbox; False without such a sandbox. Raises Refused and Unavailable."""
    if _process_exits():
        return _end_while_exiting(client, id_or_name)
    sandbox = None
    with ToleratedAnswer(is_not_found):
        async with retryable_call(f"sandbox `{id_or_name}` cannot be looked up", deadline_s=LOOK_S):
            sandbox = await client.get(id_or_name)
    if sandbox is None:
        return False
    await end_sandbox(client, sandbox, deadline_s=DISCARD_S)
    return True


def _end_while_exiting(client: sdk.AsyncDaytona, id_or_name: str) -> bool:
    """Ends a sandbox; False without such a sandbox. Blocks: there is no other work left."""
    try:
        return rest_api.delete_now(client, id_or_name)
    except OSError as error:
        raise Unavailable(f"sandbox `{id_or_name}` cannot be ended: {error}") from error


def _process_exits() -> bool:
    """Returns whether this process is exiting: no work can be given to threads any more, and the
    SDK looks for proxies in one at each request.
    """
    if not threading.main_thread().is_alive():
        return True
    # Before the main thread counts as ended, Python refuses new work and waits for what threads do.
    pool = ThreadPoolExecutor(max_workers=1)
    try:
        pool.submit(int)
    except RuntimeError:
        return True
    finally:
        pool.shutdown(wait=False)
    return False
