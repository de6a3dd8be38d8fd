"""`make live-daytona`: the suite of all providers against the Daytona of the environment's key, and
what the emulator only guesses, measured.

Daytona has nothing to put all of it into. So every sandbox and volume has a name that begins with
this check's own, and at the end those are deleted, and the snapshots that fleetctl built meanwhile.
Nothing that was there before is touched.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from secrets import token_hex
from typing import TYPE_CHECKING

from fleetctl.common.errors import FleetctlError
from fleetctl.providers.daytona.assets.daytona_snapshots import PREFIX
from fleetctl.providers.daytona.connection.daytona_errors import (
    KEY_HINT,
    is_conflict,
    is_not_found,
    retryable_call,
)
from fleetctl.providers.daytona.daytona_provider import CONTRACT
from tests.live.limits import Limits

if TYPE_CHECKING:
    import daytona

SUITE = "tests/live/daytona_suite.py"
LIMITS = Limits("daytona", at_once=4, suite_s=1200.0, lifetime_s=400.0, usd=0.15)
NAME_VARIABLE = "FLEETCTL_LIVE_NAME"  # tells the suite what its names begin with
DELETE_S = 120.0
AGAIN_S = 1.0


def main(words: list[str]) -> int:
    """The exit code. words: handed on to pytest."""
    if not (os.environ.get("DAYTONA_API_KEY") or os.environ.get("DAYTONA_JWT_TOKEN")):
        print(f"error: there is no key for Daytona\nhint: {KEY_HINT}; then again", file=sys.stderr)
        return 2
    print(LIMITS.told(), flush=True)
    with corner() as name:
        variables = {
            **os.environ,
            NAME_VARIABLE: name,
            "FLEETCTL_DAYTONA_LIFETIME_S": str(LIMITS.lifetime_s),
        }
        code = LIMITS.run(SUITE, words, variables)
        if code == 0:
            asyncio.run(_tell_what_is_guessed(name))
    return code


async def _tell_what_is_guessed(name: str) -> None:
    from tests.live import daytona_guesses

    print("what is guessed of the service, measured:")
    async for line in daytona_guesses.measured(name):
        print(f"  {line}", flush=True)


@contextmanager
def corner() -> Iterator[str]:
    """What all names begin with; at the end nothing is left that has such a name."""
    name = f"fleetctl-live-{token_hex(4)}"
    before = asyncio.run(_snapshots())
    print(f"the names of all sandboxes and volumes begin with `{name}`", flush=True)
    try:
        yield name
    finally:
        print(asyncio.run(cleared(name, before)))


async def _snapshots() -> set[str]:
    """Names of those that fleetctl built."""
    import daytona

    async with daytona.AsyncDaytona() as client:
        listed = await client.snapshot.list(limit=200)
        return {one.name for one in listed.items if one.name.startswith(PREFIX)}


async def cleared(
    name: str, before: set[str], *, list_lag_s: float = CONTRACT.visibility_bound_s
) -> str:
    """Says what there was to delete."""
    import daytona

    await asyncio.sleep(list_lag_s)
    async with daytona.AsyncDaytona() as client:
        query = daytona.ListSandboxesQuery(name=name)
        sandboxes = [one.id async for one in client.list(query) if one.name.startswith(name)]
        left = [one for one in sandboxes if await _delete_sandbox(client, one)]
        volumes = [one for one in await client.volume.list() if one.name.startswith(name)]
        for volume in volumes:
            await _delete_volume(client, volume)
        snapshots = await _snapshots() - before
        for snapshot in snapshots:
            await client.snapshot.delete(snapshot)
    return (
        f"sandboxes that were left: {len(left)} of {len(sandboxes)} that the list had; deleted"
        f" with {len(volumes)} volumes and {len(snapshots)} snapshots"
    )


async def _delete_sandbox(client: daytona.AsyncDaytona, sandbox_id: str) -> bool:
    """Returns whether it was there: the list tells of some that are gone."""
    there = False
    try:
        async with asyncio.timeout(DELETE_S):
            while True:
                try:
                    async with retryable_call("a sandbox cannot be deleted", deadline_s=DELETE_S):
                        sandbox = await client.get(sandbox_id)
                        if sandbox.state == "destroyed":
                            return there
                        there = True
                        await sandbox.delete(wait=True)
                except Exception as error:
                    if is_not_found(error):
                        return there
                    if not (is_conflict(error) or isinstance(error, FleetctlError)):
                        raise
                await asyncio.sleep(AGAIN_S)
    except TimeoutError:
        print(f"error: sandbox {sandbox_id} cannot be deleted; its TTL ends it", file=sys.stderr)
        return True


async def _delete_volume(client: daytona.AsyncDaytona, volume: daytona.Volume) -> None:
    async with asyncio.timeout(DELETE_S):
        while True:
            try:
                async with retryable_call("a volume cannot be deleted", deadline_s=DELETE_S):
                    await client.volume.delete(volume)
                return
            except Exception as error:
                if is_not_found(error):
                    return
                if not (is_conflict(error) or isinstance(error, FleetctlError)):
                    raise
            await asyncio.sleep(AGAIN_S)
