"""Sends GraphQL over HTTP to W&B, or to a server of one's own; see calls.py. Knows no operation
by name, and never writes the key to a log, an error or another host.

A call has a thread of its own, so that a service which hangs delays only its own call, not even the
end of the process, and it has a deadline of ours. A failed call is not repeated here: its caller
knows the effect of a second one.
"""

from __future__ import annotations

import asyncio
import base64
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPException
from threading import Thread
from typing import Any

from fleetctl.common.errors import NotFound, Refused, Unavailable
from fleetctl.common.version import VERSION

TIMEOUT_S = 20.0  # of one call; equals that of wandb's own agent
ANSWER_BYTES_MAX = 16 << 20  # a page of runs has far below one
RETRY_AFTER_S_MAX = 600.0
MESSAGE_CHARS_MAX = 300
KEY_HINT = "put a key of wandb.ai/authorize into WANDB_API_KEY and run `fleetctl apply` again"
AWAY_HINT = "running trials go on, and W&B is asked again; another server is `spec.wandb.baseUrl`"
NOT_FOUND_HINT = (
    "see `entity`, `project` and `sweepId` of `spec.wandb`, `project` and `entity` of the search, "
    "and whether its key may see them"
)

Answer = tuple[int, Mapping[str, str], bytes]  # status, headers, body


class WandbClient:
    """Calls with one key to one server. few: how many there may be at once."""

    def __init__(
        self,
        few: asyncio.Semaphore,
        base_url: str,
        key: str,
    ) -> None:
        self._few = few
        self._base_url = base_url
        self._url = f"{base_url}/graphql"
        self._word = "basic " + base64.b64encode(f"api:{key}".encode()).decode()

    def __repr__(self) -> str:
        return f"Client({self._url})"

    async def __call__(
        self,
        operation: str,
        query: str,
        variables: Mapping[str, Any],
    ) -> Mapping[str, Any]:
        body = {"query": query, "variables": dict(variables), "operationName": operation}
        text = json.dumps(body).encode()
        async with self._few:
            answer = await self._answer(text)
        if isinstance(answer, str):
            message = f"W&B at {self._base_url} does not answer{answer}"
            raise Unavailable(message, reason="Unreachable", hint=AWAY_HINT)
        return _read_data(*answer)

    async def _answer(self, body: bytes) -> Answer | str:
        """Returns the reply, or why it is missing as the rest of a sentence."""
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[Answer | str] = loop.create_future()

        def tell(found: Answer | str) -> None:
            if not answered.done():
                answered.set_result(found)

        def ask() -> None:
            found = self._post(body)
            with suppress(RuntimeError):  # the loop is closed, and no caller waits any more
                loop.call_soon_threadsafe(tell, found)

        Thread(
            target=ask,
            name="wandb",
            daemon=True,
        ).start()
        try:
            return await asyncio.wait_for(answered, 2 * TIMEOUT_S)
        except TimeoutError:
            return f" within {2 * TIMEOUT_S:g} s"

    def _post(self, body: bytes) -> Answer | str:
        headers = {
            "Authorization": self._word,
            "Content-Type": "application/json",
            "User-Agent": f"fleetctl/{VERSION}",
        }
        request = urllib.request.Request(self._url, body, headers)  # noqa: S310 - http(s) by its spec
        try:
            with _OPENER.open(request, timeout=TIMEOUT_S) as answer:
                return answer.status, dict(answer.headers), answer.read(ANSWER_BYTES_MAX)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, dict(error.headers), error.read(ANSWER_BYTES_MAX)
        except (OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", "") or error
            why = str(getattr(reason, "strerror", "") or reason)
            return f": {why[:MESSAGE_CHARS_MAX]}" if why else ""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, so that the key is not sent to another host."""

    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirects)


def _read_data(
    status: int,
    headers: Mapping[str, str],
    answer: bytes,
) -> Mapping[str, Any]:
    try:
        found = json.loads(answer)
    except ValueError:
        found = None
    errors = found.get("errors") if isinstance(found, dict) else None
    if status == 200 and isinstance(found, dict) and not errors:
        data = found.get("data")
        if isinstance(data, dict):
            return data
    message = _read_error(found)
    match status:
        case 401:
            text = f"W&B does not accept the key{message}"
            raise Unavailable(
                text,
                reason="KeyRefused",
                account=True,
                hint=KEY_HINT,
            )
        case 403:
            text = f"W&B does not let this key do it{message}"
            hint = "ask for access to the entity and the project, or use a key that has it"
            raise Unavailable(
                text,
                reason="AccessDenied",
                account=True,
                hint=hint,
            )
        case 404:
            raise NotFound(f"W&B does not find it{message}", hint=NOT_FOUND_HINT)
        case 429:
            wait_s = _retry_after_s(headers)
            text = f"W&B limits the rate of calls{message}"
            raise Unavailable(text, reason="RateLimited", retry_after_s=wait_s)
    if errors and status < 500:
        raise Refused(
            f"W&B refuses it{message}",
            hint="fix `search` or `spec.wandb` as it says, and apply again",
        )
    wait_s = _retry_after_s(headers)
    raise Unavailable(f"W&B answers {status}{message}", reason="Unavailable", retry_after_s=wait_s)


def _read_error(found: Any) -> str:
    """Returns the service's own message, as the rest of a sentence."""
    errors = found.get("errors") if isinstance(found, dict) else None
    first = errors[0] if isinstance(errors, list) and errors else found
    text = first.get("message") or first.get("error") if isinstance(first, dict) else first
    if isinstance(text, str):
        return f": {' '.join(text.split())[:MESSAGE_CHARS_MAX]}"
    return ""


def _retry_after_s(headers: Mapping[str, str]) -> float:
    try:
        return min(max(float(headers.get("Retry-After") or 0.0), 0.0), RETRY_AFTER_S_MAX)
    except ValueError:
        return 0.0  # a date: the caller's own backoff
