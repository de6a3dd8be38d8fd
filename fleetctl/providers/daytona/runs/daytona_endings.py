"""Ends sandboxes at Daytona and checks that they are gone, explains why one is over, and makes one
for a waiting caller that is there whole or not at all.

No other module deletes sandboxes. Daytona refuses to delete one in the midst of a change, such as
a start, so the delete is repeated. A run's outcome never comes from here: only its journal's end
record has it. This sorts the sandboxes that left no end record.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.common.errors import FleetctlError, Refused, Unavailable
from fleetctl.providers.daytona.connection import daytona_credentials, sdk
from fleetctl.providers.daytona.connection.daytona_errors import (
    classify_error,
    error_words,
    is_conflict,
    is_not_found,
    is_of_the_sdk,
    retryable_call,
)
from fleetctl.providers.remote.sandboxes.sandbox_protocol import Cause, Fate
from fleetctl.providers.remote.service_calls import ToleratedAnswer

BUSY_S, BUSY_MAX_S = 0.2, 5.0  # between two tries to delete
LOOK_S = 30.0
DISCARD_S = 120.0  # a start without a waiting caller has to end first
# A request whose answer was lost, or that was given up, may still be on its way.
LATE_S = 5.0
log = logging.getLogger("fleetctl.providers")

# No process runs in it any more, and never will again: its disk is still there and billed.
REMAINS = frozenset(("error", "build_failed", "stopped", "stopping", "archived", "archiving"))
GOING = "destroying"  # no process runs in it, but it is confirmed gone only when it is destroyed
GONE = "destroyed"
# A user or a policy holds it: its processes stand still, and it may go on.
PAUSED = frozenset(("pausing", "paused"))
ENDS_LABEL = "ends-at"  # when its TTL ends it, by the clock of who made it


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
    if not process_exits():
        try:
            async with retryable_call(
                f"sandbox `{sandbox.id}` cannot be ended", deadline_s=deadline_s
            ):
                await delete_sandbox(sandbox)
            return
        except Exception:  # also what an ending interpreter raises
            if not process_exits():
                raise
    end_while_exiting(client, sandbox.id)


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
        exits = process_exits()
        pause_s = BUSY_S
        try:
            if await end_by_name(client, id_or_name) or loop.time() - began_s >= late_s:
                return
        except Exception as error:  # also what an ending interpreter raises
            if not exits and process_exits():
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
    if process_exits():
        return end_while_exiting(client, id_or_name)
    sandbox = None
    with ToleratedAnswer(is_not_found):
        async with retryable_call(f"sandbox `{id_or_name}` cannot be looked up", deadline_s=LOOK_S):
            sandbox = await client.get(id_or_name)
    if sandbox is None:
        return False
    await end_sandbox(client, sandbox, deadline_s=DISCARD_S)
    return True


def end_while_exiting(client: sdk.AsyncDaytona, id_or_name: str) -> bool:
    """Ends a sandbox; False without such a sandbox. Blocks: there is no other work left."""
    try:
        return daytona_credentials.delete_now(client, id_or_name)
    except OSError as error:
        raise Unavailable(f"sandbox `{id_or_name}` cannot be ended: {error}") from error


def process_exits() -> bool:
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


@dataclass(frozen=True, slots=True)
class DaytonaFacts:
    """The known facts about a sandbox's end. state: "" when Daytona does not know the id. expired:
    its TTL has passed by our clock.
    """

    state: str
    ours: bool = False
    evicted: bool = False
    queue_timed_out: bool = False
    expired: bool = False
    error: str = ""


# The first that holds. Ends that we requested come first.
_RULES: tuple[tuple[Callable[[DaytonaFacts], bool], Cause], ...] = (
    (lambda facts: facts.ours, Cause.STOPPED),
    (lambda facts: facts.evicted, Cause.PREEMPTED),
    (lambda facts: facts.queue_timed_out, Cause.QUEUE),
    (lambda facts: facts.state in ("error", "build_failed"), Cause.FAILED),
    (lambda facts: facts.expired, Cause.TIMEOUT),
    # Another user may have done it, or a machine's end: Daytona does not distinguish the two.
    (lambda facts: facts.state != "", Cause.LOST),
    # Not known by id any more: Daytona forgets what was destroyed, whoever did it.
    (lambda _: True, Cause.UNKNOWN),
)


def state_of(sandbox: sdk.AsyncSandbox) -> str:
    return str(getattr(sandbox.state, "value", sandbox.state) or "unknown")


def is_over(state: str) -> bool:
    """Returns whether the end is confirmed: the sandbox is gone, or its rest only has to be
    deleted.
    """
    return not state or state == GONE or state in REMAINS


def is_listed(state: str) -> bool:
    """Returns whether its end was not requested yet."""
    return state not in (GOING, GONE)


def may_work(state: str) -> bool:
    return not is_over(state) and state != GOING


def resolve_fate(facts: DaytonaFacts) -> Fate | None:
    """Returns the sandbox's fate; None while it lives or may come to live."""
    if not is_over(facts.state):
        return None
    cause = next(cause for holds, cause in _RULES if holds(facts))
    return Fate(cause, facts.error if cause is Cause.FAILED else "")


# Sandboxes for files of volumes are made by `make_single`, which ends the sandbox of an earlier
# request. A run's sandbox is made by daytona_creator.py, which adopts it.

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
