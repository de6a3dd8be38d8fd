"""Translates the SDK's errors of making and reading sandboxes into fleetctl's.

Called by modal_connection.py, modal_creator.py and modal_sandboxes.py. The SDK's names are looked
up when an error is there, so that importing this module is cheap.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from fleetctl.common.errors import FleetctlError, Refused, Unavailable
from fleetctl.common.install import install_hint
from fleetctl.providers.remote.service_calls import RETRY_AFTER_S, translated_call

# The controller keeps the environment that it was started with.
TOKEN_HINT = "run `modal token new`, or export MODAL_TOKEN_ID and MODAL_TOKEN_SECRET and run `fleetctl down`; then apply again"  # noqa: E501, S105
RATE_AFTER_S = 5.0  # when Modal names no time
NO_CAPACITY_AFTER_S = 60.0
LIMIT_AFTER_S = 120.0  # only a user can lift it; a question is cheap
# The least; callers back off from it. One of our own runs that ends makes room long before.
QUOTA_AFTER_S = 2.0
ACCOUNT_AFTER_S = 15.0  # a token may be fixed at any moment, or was refused by mistake
WORDS_MAX = 400

# grpclib's words for a reply that no gRPC server sent: a proxy's page, or a load balancer's.
_OF_A_GATEWAY = (
    "Received :status =",
    "Missing content-type",
    "Invalid content-type",
    "Missing grpc-status",
    "Invalid grpc-status",
)
_MONEY = ("spend", "billing", "budget", "credit", "payment")
_QUOTA = ("quota", "limit", "too many", "maximum", "exceeded your")


def retryable_call(what: str, *, deadline_s: float) -> AbstractAsyncContextManager[None]:
    """A call that may be made again at will, under our own deadline: the SDK's are minutes long.

    what: such as `sandbox sb-1 cannot be ended`. Raises Refused or Unavailable; a NotFoundError
    passes, because it is an answer.
    """

    def translate(error: Exception) -> FleetctlError | None:
        if is_not_found(error) or not is_of_the_sdk(error):
            return None
        return classify_error(error, what) or unknown_error(error, what)

    return translated_call(
        what,
        service="Modal",
        deadline_s=deadline_s,
        translate=translate,
        hint="fleetctl doctor",
    )


@asynccontextmanager
async def sandbox_call(what: str, *, deadline_s: float) -> AsyncIterator[None]:
    """Translates errors of a call; a sandbox that is not found has ended."""
    from modal import exception as sdk

    try:
        async with retryable_call(what, deadline_s=deadline_s):
            yield
    except sdk.NotFoundError as error:
        raise Unavailable(f"{what}: it has ended") from error


def classify_error(error: Exception, what: str) -> FleetctlError | None:
    """Returns the error of a call that was certainly not carried out; None when its outcome is
    unknown.

    Refused blames this template alone, and its receiver checks a second time. Trouble of the
    account is never the template's fault.
    """
    from modal import exception as sdk

    if is_of_a_gateway(error):
        return None
    match error:
        case sdk.AuthError():
            return account_trouble(f"{what}: Modal does not accept the token", "KeyRefused")
        case sdk.PermissionDeniedError() | sdk.ConflictError() if _mentions_any(error, _MONEY):
            return _spend_limit(f"{what}: {error_words(error)}")
        case sdk.PermissionDeniedError():
            message = f"{what}: the token has no access: {error_words(error)}"
            return account_trouble(message, "AccessDenied")
        case sdk.VersionError():
            message = f"{what}: {error_words(error)}"
            hint = install_hint("modal", upgrade=True)
            return account_trouble(message, "ClientTooOld", hint=hint)
        case sdk.ResourceExhaustedError():
            return _exhausted_error(error, what)
        case sdk.ConflictError():  # an InvalidError too, and comes first: the state is another
            return None
        case sdk.NotFoundError():
            return Unavailable(f"{what}: {error_words(error)}", retry_after_s=RETRY_AFTER_S)
        case sdk.UnimplementedError():  # of the service, in spite of a valid template
            return unknown_error(error, what)
        case sdk.InvalidError() | sdk.RequestSizeError():
            return Refused(f"{what}: {error_words(error)}", hint="change the template")
    return None


def unknown_error(error: Exception, what: str) -> Unavailable:
    """Returns the error for an unknown reply to a request that may be repeated: it quotes the
    reply. An unreachable service has a reason of its own.
    """
    from modal import exception as sdk

    expected = sdk.ServiceError | sdk.InternalError | sdk.ConnectionError | OSError
    away = isinstance(error, expected) and not is_of_a_gateway(error)
    reason = "Unavailable" if away else "UnknownAnswer"
    message = f"{what}: {error_words(error)}"
    if is_of_a_gateway(error):
        message = f"{what}: what answered is not Modal: {error_words(error)}"
    return Unavailable(
        message,
        retry_after_s=RETRY_AFTER_S,
        reason=reason,
        hint="fleetctl doctor",
    )


def account_trouble(
    message: str,
    reason: str,
    *,
    hint: str = TOKEN_HINT,
) -> Unavailable:
    """Returns an Unavailable for which all requests of this account wait; present runs go on."""
    return Unavailable(
        message,
        retry_after_s=ACCOUNT_AFTER_S,
        reason=reason,
        hint=hint,
        account=True,
    )


def is_of_a_gateway(error: Exception) -> bool:
    """Returns whether something between us and Modal replied instead of Modal, with a web page."""
    return any(word in str(error) for word in _OF_A_GATEWAY)


def not_found_error() -> type[Exception]:
    """Returns the SDK's class for an `except`: it is loaded by the first error."""
    from modal import exception as sdk

    return sdk.NotFoundError


def sdk_errors() -> tuple[type[Exception], ...]:
    """Returns the classes of errors that the SDK raises, or that leak from what it is made of; all
    else is a bug of ours. For an `except`, as above.
    """
    import aiohttp
    import grpclib.exceptions
    from modal import exception as sdk

    stream = grpclib.exceptions.StreamTerminatedError
    return (sdk.Error, grpclib.GRPCError, stream, aiohttp.ClientError, OSError)


def is_not_found(error: Exception) -> bool:
    return isinstance(error, not_found_error())


def is_of_the_sdk(error: Exception) -> bool:
    return isinstance(error, sdk_errors())


def error_words(error: Exception) -> str:
    """The error's own words on one line, as far as they are short."""
    return (" ".join(str(error).split()) or type(error).__name__)[:WORDS_MAX].rstrip(".")


def _exhausted_error(error: Exception, what: str) -> Unavailable:
    """Distinguishes four errors with one status; only a rate limit may carry how long to wait."""
    message = f"{what}: {error_words(error)}"
    text = str(error).lower()
    after_s = _retry_after_s(error)
    if after_s is not None or "rate limit" in text:
        return Unavailable(
            message,
            reason="RateLimited",
            retry_after_s=RATE_AFTER_S if after_s is None else after_s,
        )
    if "capacity" in text:
        return Unavailable(message, reason="NoCapacity", retry_after_s=NO_CAPACITY_AFTER_S)
    if _mentions_any(error, _MONEY):
        return _spend_limit(message)
    if _mentions_any(error, _QUOTA):
        return Unavailable(
            message,
            reason="Quota",
            retry_after_s=QUOTA_AFTER_S,
            account=True,
        )
    return unknown_error(error, what)


def _spend_limit(message: str) -> Unavailable:
    return Unavailable(
        message,
        reason="SpendLimit",
        retry_after_s=LIMIT_AFTER_S,
        hint="raise the limit in the workspace's settings at modal.com",
        account=True,
    )


def _mentions_any(error: Exception, any_of: tuple[str, ...]) -> bool:
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
