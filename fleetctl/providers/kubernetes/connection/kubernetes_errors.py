"""Translates an API server's errors into fleetctl's: whose fault they are, and whether the call was
certainly not carried out.

Called by all modules that call a cluster. The page of a gateway before the server is no answer of
the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fleetctl.common.errors import FleetctlError, Refused, Unavailable
from fleetctl.kubernetes.answers import INVALID, ApiError
from fleetctl.providers.remote.service_calls import RETRY_AFTER_S

UNKNOWN_ANSWER = "UnknownAnswer"
TOKEN_HINT = "`kubectl auth whoami` with the same kubeconfig shows whether its token has expired"  # noqa: S105
ACCESS_DENIED = "AccessDenied"
RIGHTS_HINT = "`kubectl auth can-i --list` lists what the token may do"
QUOTA_HINT = "`kubectl describe quota` shows how much of it is used; what waits goes on by itself"
TOKEN_AFTER_S = 10.0  # a token that is being replaced is there soon
QUOTA_AFTER_S = 10.0  # until something else in the namespace ends
WORDS_MAX = 400


@asynccontextmanager
async def cluster_call(what: str, *, deadline_s: float) -> AsyncIterator[None]:
    """A question under our own deadline. what: such as `run x cannot be ended`.

    Raises Refused or Unavailable; a 404 and a 409 of the API server itself pass, because they are
    answers.
    """
    try:
        async with asyncio.timeout(deadline_s):
            yield
    except TimeoutError as error:
        raise Unavailable(
            f"{what}: the Kubernetes API server does not answer", retry_after_s=RETRY_AFTER_S
        ) from error
    except (ApiError, Unavailable) as error:
        if is_not_found(error) or is_conflict(error):
            raise
        raise classify_error(error, what) from error


def classify_error(error: ApiError | Unavailable, what: str) -> FleetctlError:
    """The same in words about what was tried."""
    if isinstance(error, Unavailable):
        return _connection_error(error, what)
    message = f"{what}: {server_words(error)}"
    if error.code == INVALID and error.reason:
        return Refused(message, hint="change the template, or the Provider object's `kubernetes`")
    return Unavailable(message, reason=UNKNOWN_ANSWER, retry_after_s=RETRY_AFTER_S)


def _connection_error(error: Unavailable, what: str) -> Unavailable:
    """Returns the error of the cases that the connection itself has distinguished."""
    if error.reason == "Unauthorized":
        return Unavailable(
            f"{what}: the Kubernetes API server does not accept the token",
            reason="KeyRefused",
            retry_after_s=TOKEN_AFTER_S,
            hint=TOKEN_HINT,
            account=True,
        )
    if error.account:
        full = error.reason == "Quota"
        return Unavailable(
            f"{what}: {_shorten_page(str(error))}",
            reason="Quota" if full else ACCESS_DENIED,
            retry_after_s=QUOTA_AFTER_S if full else TOKEN_AFTER_S,
            hint=QUOTA_HINT if full else RIGHTS_HINT,
            account=True,
        )
    return Unavailable(
        f"{what}: {_shorten_page(str(error))}",
        reason=error.reason,
        retry_after_s=error.retry_after_s or RETRY_AFTER_S,
        hint=error.hint,
        perhaps_made=error.perhaps_made,
    )


def is_not_found(error: BaseException) -> bool:
    """Returns whether the API server itself reports that there is no such object; a proxy's 404 has
    no reason.
    """
    return isinstance(error, ApiError) and error.not_found and error.reason == "NotFound"


def is_conflict(error: BaseException) -> bool:
    return isinstance(error, ApiError) and (error.exists or error.conflict) and bool(error.reason)


def server_words(error: ApiError) -> str:
    """The server's own words on one line."""
    if not error.reason:
        return f"HTTP {error.code} from a proxy"
    return _shorten_page(str(error))


def _shorten_page(text: str) -> str:
    """Returns the text on one line, without a proxy's page."""
    line = " ".join(text.split())
    prefix, page, _ = line.partition("<")
    if page and "html" in line.lower():
        line = f"{prefix}a page of a proxy"
    return line[:WORDS_MAX].rstrip(". ")
