"""What an API server answers, in our words: whose fault it tells, and what it says for sure.

Called by all that ask a cluster something. A page of a gateway before it is no answer of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fleetctl.common.errors import FleetctlError, Refused, Unavailable
from fleetctl.kubernetes.answers import INVALID, ApiError
from fleetctl.providers.remote.connection.asking import ASK_AGAIN_S

UNKNOWN_ANSWER = "UnknownAnswer"
TOKEN_HINT = "`kubectl auth whoami` with the same kubeconfig says whether its token is over"  # noqa: S105
RIGHTS_HINT = "`kubectl auth can-i --list` says what the token may do"
QUOTA_HINT = "`kubectl describe quota` says what of it is used; what waits goes on by itself"
TOKEN_AFTER_S = 10.0  # a token that is being replaced is there soon
QUOTA_AFTER_S = 10.0  # until something else in the namespace ends
WORDS_MAX = 400


@asynccontextmanager
async def asking(what: str, *, deadline_s: float) -> AsyncIterator[None]:
    """A question under our own deadline. what: such as `run x cannot be ended`.

    Raises Refused or Unavailable; a 404 and a 409 of the API server itself pass, because they are
    answers.
    """
    try:
        async with asyncio.timeout(deadline_s):
            yield
    except TimeoutError as error:
        raise Unavailable(
            f"{what}: the Kubernetes API server does not answer", retry_after_s=ASK_AGAIN_S
        ) from error
    except (ApiError, Unavailable) as error:
        if is_not_found(error) or is_conflict(error):
            raise
        raise certain(error, what) from error


def certain(error: ApiError | Unavailable, what: str) -> FleetctlError:
    """The same in words about what was tried."""
    if isinstance(error, Unavailable):
        return _passing(error, what)
    message = f"{what}: {words(error)}"
    if error.code == INVALID and error.reason:
        return Refused(message, hint="change the template, or the Provider object's `kubernetes`")
    return Unavailable(message, reason=UNKNOWN_ANSWER, retry_after_s=ASK_AGAIN_S)


def _passing(error: Unavailable, what: str) -> Unavailable:
    """What the connection itself has told apart."""
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
            f"{what}: {_shown(str(error))}",
            reason="Quota" if full else "AccessDenied",
            retry_after_s=QUOTA_AFTER_S if full else TOKEN_AFTER_S,
            hint=QUOTA_HINT if full else RIGHTS_HINT,
            account=True,
        )
    return Unavailable(
        f"{what}: {_shown(str(error))}",
        reason=error.reason,
        retry_after_s=error.retry_after_s or ASK_AGAIN_S,
        hint=error.hint,
        perhaps_made=error.perhaps_made,
    )


def is_not_found(error: BaseException) -> bool:
    """The API server itself says that there is no such thing; a proxy's 404 has no reason."""
    return isinstance(error, ApiError) and error.not_found and error.reason == "NotFound"


def is_conflict(error: BaseException) -> bool:
    return isinstance(error, ApiError) and (error.exists or error.conflict) and bool(error.reason)


def words(error: ApiError) -> str:
    """The server's own words on one line."""
    if not error.reason:
        return f"HTTP {error.code} from a proxy"
    return _shown(str(error))


def _shown(text: str) -> str:
    """A proxy's page is not told."""
    line = " ".join(text.split())
    prefix, page, _ = line.partition("<")
    if page and "html" in line.lower():
        line = f"{prefix}a page of a proxy"
    return line[:WORDS_MAX].rstrip(". ")
