"""What the SDK has no call for, asked of Daytona's API itself: at the address and with the key that
the SDK was given. Nothing here reaches behind the SDK's face.
"""

from __future__ import annotations

import asyncio
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING
from urllib.parse import quote

from fleetctl.providers.daytona.connection import credentials
from fleetctl.providers.daytona.connection.errors import is_marked

if TYPE_CHECKING:
    import daytona

FETCH_S = 30.0
DELETE_S = 30.0
LOOK_S = 0.1


async def build_log(client: daytona.AsyncDaytona, snapshot: str) -> str:
    """The log of a snapshot's build, as a whole: the SDK streams nothing of a build that is over
    before it looks. "" where it cannot be had: a build's end never depends on its log.
    """
    import aiohttp

    known = credentials.of_client(client)
    place = f"{known.url}/snapshots/{quote(snapshot, safe='')}/build-logs-url"
    try:
        async with (
            asyncio.timeout(FETCH_S),
            aiohttp.ClientSession(trust_env=True, headers=known.headers()) as session,
        ):
            async with session.get(place) as address:
                address.raise_for_status()
                log = str((await address.json())["url"])
            async with session.get(log) as answer:
                answer.raise_for_status()
                return await answer.text(errors="replace")
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError, TypeError):
        return ""


def delete_now(client: daytona.AsyncDaytona, id_or_name: str) -> bool:
    """Delete a sandbox while this process exits, and see that it is gone. Blocks. False when there
    is none.

    The SDK looks for proxies in a thread at each request, and no thread can be started any more.
    Raises OSError when it does not work out in time.
    """
    known = credentials.of_client(client)
    url = f"{known.url}/sandbox/{quote(id_or_name, safe='')}"
    until_s = time.monotonic() + DELETE_S
    method = "DELETE"
    while time.monotonic() < until_s:
        request = urllib.request.Request(url, method=method, headers=known.headers())  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=DELETE_S) as answer:  # noqa: S310
                answer.read()
            method = "GET"  # accepted; from now on it is only looked at
        except urllib.error.HTTPError as error:
            if error.code == 404 and is_marked(error.read()):
                return method == "GET"
            if error.code not in (404, 409):
                raise
        time.sleep(LOOK_S)
    raise TimeoutError(f"sandbox `{id_or_name}` is still there")
