"""Calls Daytona's API itself where the SDK has no method: at the address and with the key that the
SDK was given. No private part of the SDK is used here.
"""

from __future__ import annotations

import asyncio
import time
import urllib.error
import urllib.request
from urllib.parse import quote

from fleetctl.providers.daytona.connection import daytona_credentials, sdk
from fleetctl.providers.daytona.connection.daytona_errors import is_marked

FETCH_S = 30.0
DELETE_S = 30.0
LOOK_S = 0.1


async def build_log(client: sdk.AsyncDaytona, snapshot: str) -> str:
    """Returns the whole log of a snapshot's build: the SDK streams no line of a build that is over
    before it looks. "" where it cannot be had: a build's end never depends on its log.
    """
    import aiohttp

    known = daytona_credentials.of_client(client)
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


def delete_now(client: sdk.AsyncDaytona, id_or_name: str) -> bool:
    """Deletes a sandbox while this process exits, and checks that it is gone. Blocks. False without
    such a sandbox.

    The SDK looks for proxies in a thread at each request, and no thread can be started any more.
    Raises OSError when it is not gone in time.
    """
    known = daytona_credentials.of_client(client)
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
