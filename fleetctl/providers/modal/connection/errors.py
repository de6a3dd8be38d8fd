"""What the SDK raises when sandboxes are made and looked at, in our words.

Called by client.py, creates.py and sandboxes.py. The SDK's names are looked up when an error is
there, so that importing this costs nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from fleetctl.common.errors import FleetctlError, Refused, Unavailable
from fleetctl.common.install import install_hint
from fleetctl.providers.remote.connection.asking import ASK_AGAIN_S, asked

# The controller keeps the environment that it was started with.
TOKEN_HINT = "run `modal token new`, or export MODAL_TOKEN_ID and MODAL_TOKEN_SECRET and run `fleetctl down`; then apply again"  # noqa: E501, S105
RATE_AFTER_S = 5.0  # when Modal does not say how long
NO_CAPACITY_AFTER_S = 60.0
LIMIT_AFTER_S = 120.0  # only a person can lift it; a question costs next to nothing
# The least; who asks backs off from it. One of our own that ends makes room long before.
QUOTA_AFTER_S = 2.0
ACCOUNT_AFTER_S = 15.0  # a token may be mended at any moment, or was refused by mistake
WORDS_MAX = 400

# What grpclib says of an answer that no gRPC server gave: a proxy's page, or a load balancer's.
_OF_A_GATEWAY = (
    "Received :status =",
    "Missing content-type",
    "Invalid content-type",
    "Missing grpc-status",
    "Invalid grpc-status",
)
_MONEY = ("spend", "billing", "budget", "credit", "payment")
_QUOTA = ("quota", "limit", "too many", "maximum", "exceeded your")


def asking(what: str, *, deadline_s: float) -> AbstractAsyncContextManager[None]:
    """A call that may be made again at will, under our own deadline: the SDK's are minutes long.

    what: such as `sandbox sb-1 cannot be ended`. Raises Refused or Unavailable; a NotFoundError
    passes, because it is an answer.
    """

    def translate(error: Exception) -> FleetctlError | None:
        if is_not_found(error) or not is_of_the_sdk(error):
            return None
        return certain(error, what) or unknown(error, what)

    return asked(
        what, service="Modal", deadline_s=deadline_s, translate=translate, hint="fleetctl doctor"
    )


@asynccontextmanager
async def reaching(what: str, *, deadline_s: float) -> AsyncIterator[None]:
    """As `asking`, where a sandbox that is not found is one that is over."""
    from modal import exception as sdk

    try:
        async with asking(what, deadline_s=deadline_s):
            yield
    except sdk.NotFoundError as error:
        raise Unavailable(f"{what}: it is over") from error


def certain(error: Exception, what: str) -> FleetctlError | None:
    """What an error says for sure of the call that raised it: that it was not carried out. None
    when its outcome is unknown.

    Refused blames this template alone, and whoever hears it looks a second time. What concerns the
    account is never the template's fault.
    """
    from modal import exception as sdk

    if is_of_a_gateway(error):
        return None
    match error:
        case sdk.AuthError():
            return account_trouble(f"{what}: Modal does not accept the token", "KeyRefused")
        case sdk.PermissionDeniedError() | sdk.ConflictError() if _says(error, _MONEY):
            return _spend_limit(f"{what}: {words(error)}")
        case sdk.PermissionDeniedError():
            message = f"{what}: the token has no access: {words(error)}"
            return account_trouble(message, "AccessDenied")
        case sdk.VersionError():
            message, hint = f"{what}: {words(error)}", install_hint("modal", upgrade=True)
            return account_trouble(message, "ClientTooOld", hint=hint)
        case sdk.ResourceExhaustedError():
            return _exhausted(error, what)
        case sdk.ConflictError():  # an InvalidError too, and comes first: the state is another
            return None
        case sdk.NotFoundError():
            return Unavailable(f"{what}: {words(error)}", retry_after_s=ASK_AGAIN_S)
        case sdk.UnimplementedError():  # of the service, whatever the template says
            return unknown(error, what)
        case sdk.InvalidError() | sdk.RequestSizeError():
            return Refused(f"{what}: {words(error)}", hint="change the template")
    return None


def unknown(error: Exception, what: str) -> Unavailable:
    """The error for a question that may be asked again at will and had an unknown answer: it
    quotes the answer. A service that is away has a reason of its own.
    """
    from modal import exception as sdk

    expected = sdk.ServiceError | sdk.InternalError | sdk.ConnectionError | OSError
    away = isinstance(error, expected) and not is_of_a_gateway(error)
    reason = "Unavailable" if away else "UnknownAnswer"
    message = f"{what}: {words(error)}"
    if is_of_a_gateway(error):
        message = f"{what}: what answered is not Modal: {words(error)}"
    return Unavailable(message, retry_after_s=ASK_AGAIN_S, reason=reason, hint="fleetctl doctor")


def account_trouble(message: str, reason: str, *, hint: str = TOKEN_HINT) -> Unavailable:
    """Whatever asks with this account waits for it; what runs goes on."""
    return Unavailable(
        message, retry_after_s=ACCOUNT_AFTER_S, reason=reason, hint=hint, account=True
    )


def is_of_a_gateway(error: Exception) -> bool:
    """Something between us and Modal answered in its place, with a page for people."""
    return any(word in str(error) for word in _OF_A_GATEWAY)


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
    message, text = f"{what}: {words(error)}", str(error).lower()
    after_s = _retry_after_s(error)
    if after_s is not None or "rate limit" in text:
        return Unavailable(
            message,
            reason="RateLimited",
            retry_after_s=RATE_AFTER_S if after_s is None else after_s,
        )
    if "capacity" in text:
        return Unavailable(message, reason="NoCapacity", retry_after_s=NO_CAPACITY_AFTER_S)
    if _says(error, _MONEY):
        return _spend_limit(message)
    if _says(error, _QUOTA):
        return Unavailable(message, reason="Quota", retry_after_s=QUOTA_AFTER_S, account=True)
    return unknown(error, what)


def _spend_limit(message: str) -> Unavailable:
    return Unavailable(
        message,
        reason="SpendLimit",
        retry_after_s=LIMIT_AFTER_S,
        hint="raise the limit in the workspace's settings at modal.com",
        account=True,
    )


def _says(error: Exception, any_of: tuple[str, ...]) -> bool:
    text = str(error).lower()
    return any(word in text for word in any_of)


def _retry_after_s(error: Exception) -> float | None:
    """The seconds of the retry policy that a throttled reply carries; its public attribute
    warns.
    """
    details: Any = getattr(error, "_grpc_details", None) or ()
    for entry in details:
        after_s = getattr(entry, "retry_after_secs", None)
        if after_s is not None:
            return float(after_s)
    return None
