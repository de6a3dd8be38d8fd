"""What the SDK raises when sandboxes are made and looked at, in our words.

Called by client.py, creating.py and sandboxes.py. The SDK's names are looked up when an error is
there, so that importing this costs nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fleetctl.errors import FleetctlError, Refused, Unavailable

# The controller keeps the environment that it was started with.
TOKEN_HINT = "run `modal token new`, or export MODAL_TOKEN_ID and MODAL_TOKEN_SECRET and run `fleetctl down`; then apply again"  # noqa: E501, S105
RATE_AFTER_S = 5.0  # when Modal does not say how long
NO_CAPACITY_AFTER_S = 60.0
LIMIT_AFTER_S = 600.0  # only a person can lift it
ASK_AGAIN_S = 5.0
WORDS_MAX = 400


@asynccontextmanager
async def asking(what: str, *, deadline_s: float) -> AsyncIterator[None]:
    """A call that may be made again at will, under our own deadline: the SDK's are minutes long.

    what: such as `sandbox sb-1 cannot be ended`. Raises Refused or Unavailable; a NotFoundError
    passes, because it is an answer.
    """
    try:
        async with asyncio.timeout(deadline_s):
            yield
    except FleetctlError:
        raise
    except TimeoutError as error:
        raise Unavailable(
            f"{what}: Modal does not answer", retry_after_s=ASK_AGAIN_S, hint="fleetctl doctor"
        ) from error
    except Exception as error:
        if is_not_found(error) or not is_of_the_sdk(error):
            raise
        told = certain(error, what)
        raise told or Unavailable(f"{what}: {words(error)}", retry_after_s=ASK_AGAIN_S) from error


def certain(error: Exception, what: str) -> FleetctlError | None:
    """What an error says for sure: that nothing was made. None when the outcome is unknown."""
    from modal import exception as sdk

    match error:
        case sdk.AuthError():
            return Refused(f"{what}: Modal does not accept the token", hint=TOKEN_HINT)
        case sdk.PermissionDeniedError():
            return Refused(f"{what}: the token has no access: {words(error)}", hint=TOKEN_HINT)
        case sdk.VersionError():
            return Refused(f"{what}: {words(error)}", hint="pip install --upgrade modal")
        case sdk.ResourceExhaustedError():
            return _exhausted(error, what)
        case sdk.ConflictError():  # an InvalidError too, and comes first: the state is another
            return None
        case sdk.NotFoundError():
            return Unavailable(f"{what}: {words(error)}", retry_after_s=ASK_AGAIN_S)
        case sdk.InvalidError() | sdk.UnimplementedError() | sdk.RequestSizeError():
            return Refused(f"{what}: {words(error)}", hint="change the template")
    return None


def is_not_found(error: Exception) -> bool:
    from modal import exception as sdk

    return isinstance(error, sdk.NotFoundError)


def is_of_the_sdk(error: Exception) -> bool:
    """Raised by the SDK, or leaked by what it is made of; all else is a bug of ours."""
    import aiohttp
    import grpclib.exceptions
    from modal import exception as sdk

    stream = grpclib.exceptions.StreamTerminatedError
    return isinstance(error, sdk.Error | grpclib.GRPCError | stream | aiohttp.ClientError | OSError)


def words(error: Exception) -> str:
    """The error's own words on one line, as far as they are short."""
    return (" ".join(str(error).split()) or type(error).__name__)[:WORDS_MAX].rstrip(".")


def _exhausted(error: Exception, what: str) -> Unavailable:
    """One status for four things; only a rate limit may carry how long to wait."""
    said, text = f"{what}: {words(error)}", str(error).lower()
    after_s = _retry_after_s(error)
    if after_s is not None or "rate limit" in text:
        return Unavailable(
            said, reason="RateLimited", retry_after_s=RATE_AFTER_S if after_s is None else after_s
        )
    if "capacity" in text:
        return Unavailable(said, reason="NoCapacity", retry_after_s=NO_CAPACITY_AFTER_S)
    if any(word in text for word in ("spend", "billing", "budget", "credit")):
        return Unavailable(
            said,
            reason="SpendLimit",
            retry_after_s=LIMIT_AFTER_S,
            hint="raise the limit in the workspace's settings at modal.com",
        )
    return Unavailable(said, reason="Quota", retry_after_s=LIMIT_AFTER_S)


def _retry_after_s(error: Exception) -> float | None:
    """Of the retry policy that a throttled reply carries; its public attribute warns."""
    details: Any = getattr(error, "_grpc_details", None) or ()
    for entry in details:
        after_s = getattr(entry, "retry_after_secs", None)
        if after_s is not None:
            return float(after_s)
    return None
