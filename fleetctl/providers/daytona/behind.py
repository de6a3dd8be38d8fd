"""What the SDK has no call for. The one place that reaches behind its face, for the address and the
headers that it would use itself.
"""

from __future__ import annotations

import asyncio
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING
from urllib.parse import quote

from fleetctl.providers.daytona.errors import is_of_the_sdk

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
    from daytona_api_client_async import SnapshotsApi
    from daytona_api_client_async.exceptions import OpenApiException

    api = client._api_client
    try:
        async with asyncio.timeout(FETCH_S):
            place = await SnapshotsApi(api).get_snapshot_build_logs_url(snapshot)
            async with (
                aiohttp.ClientSession(trust_env=True) as session,
                session.get(place.url, headers=dict(api.default_headers)) as answer,
            ):
                answer.raise_for_status()
                return await answer.text(errors="replace")
    except (OpenApiException, TimeoutError):
        return ""
    except Exception as error:
        if not is_of_the_sdk(error):
            raise
        return ""


def delete_now(client: daytona.AsyncDaytona, id_or_name: str) -> bool:
    """Delete a sandbox while this process exits, and see that it is gone. Blocks. False when there
    is none.

    The SDK looks for proxies in a thread at each request, and no thread can be started any more.
    Raises OSError when it does not work out in time.
    """
    api = client._api_client
    url = f"{api.configuration.host}/sandbox/{quote(id_or_name)}"
    until_s = time.monotonic() + DELETE_S
    method = "DELETE"
    while time.monotonic() < until_s:
        request = urllib.request.Request(url, method=method, headers=dict(api.default_headers))  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=DELETE_S) as answer:  # noqa: S310
                answer.read()
            method = "GET"  # accepted; from now on it is only looked at
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return method == "GET"
            if error.code != 409:
                raise
        time.sleep(LOOK_S)
    raise TimeoutError(f"sandbox `{id_or_name}` is still there")
