"""Translates the SDK's errors into fleetctl's, and stops calls of one kind after a 429 until
Daytona takes them again.

The SDK's names are looked up when an error is there, so that importing this module is cheap.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from fleetctl.common.errors import FleetctlError, Refused, Unavailable
from fleetctl.providers.daytona.connection import sdk
from fleetctl.providers.remote.service_calls import RETRY_AFTER_S, translated_call

KEY_HINT = "export DAYTONA_API_KEY=..., a key of app.daytona.io/dashboard/keys"
RATE_AFTER_S = 5.0  # when Daytona names no time
# At least; the engine doubles it while the answer stays, and asks at once when one of ours ends.
QUOTA_AFTER_S = 2.0
SUSPENDED_AFTER_S = 120.0  # only a user can lift it; a call is cheap
KEY_AFTER_S = 10.0  # the same; a key that is being replaced is there soon
VOLUME_AFTER_S = 2.0
WORDS_MAX = 400
UNKNOWN_ANSWER = "UnknownAnswer"
# The service's own: no part of the order is at fault.
OF_NOBODY = ("NoCapacity", "Unreachable")

# The marks of Daytona's own answers: a look-up is answered by the first, a call into a sandbox by
# the second.
_SERVICE = ("DAYTONA_API", "DAYTONA_DAEMON")
# A 403 is the key's fault, except with this text, which goes on with a colon and `Depleted
# credits`, `Payment method required` or `Please verify your email address`.
_SUSPENDED = re.compile(r"organization is suspended", re.IGNORECASE)
_MONEY = re.compile(r"credit|payment|billing|invoice", re.IGNORECASE)
# A 400 is the caller's mistake, except with these texts.
_QUOTA = re.compile(r"(limit|quota) exceeded", re.IGNORECASE)
_NO_RUNNERS = re.compile(r"no (available|healthy) runners?|no runners? available", re.IGNORECASE)
_NOT_READY = re.compile(r"not in a ready state", re.IGNORECASE)
_REGION = re.compile(r"is not available in (the )?(region|target)", re.IGNORECASE)
_SNAPSHOT = re.compile(r"snapshot \S+ (is (?!not valid)|not found)", re.IGNORECASE)
# Words that blame the order itself. A 400 with other words proves little: they change without
# notice, and passing troubles once had words that sounded final.
_OF_THE_ORDER = re.compile(
    r"exceeds? (the )?maximum|maximum allowed per sandbox|must (be|have|include|not|contain)"
    r"|is not (a )?valid|invalid|not (allowed|supported)|unsupported|mutually exclusive"
    r"|cannot specify|gpu type .* is not available|only available for|validation failed"
    r"|secrets not found|is already in use by another"
)

RATE_LIMITED = "RateLimited"


def retryable_call(
    what: str,
    *,
    deadline_s: float,
    throttle: Throttle | None = None,
) -> AbstractAsyncContextManager[None]:
    """A call that may be made again at will, under our own deadline: the SDK's are minutes long.

    what: such as `sandbox x cannot be ended`. throttle: of the calls of its kind. Raises Refused or
    Unavailable; a 404 and a 409 pass, because they are answers.
    """
    if throttle is not None:
        throttle.check(what)

    def translate(error: Exception) -> FleetctlError | None:
        if is_not_found(error) or is_conflict(error) or not is_of_the_sdk(error):
            return None
        certain_error = classify_error(error, what)
        if throttle is not None:
            throttle.hear(certain_error)
        return certain_error or Unavailable(
            f"{what}: {error_words(error)}", retry_after_s=RETRY_AFTER_S
        )

    return translated_call(
        what,
        service="Daytona",
        deadline_s=deadline_s,
        translate=translate,
    )


def unknown_answer(message: str) -> Unavailable:
    """The error for an answer in unknown words: it quotes them, and the service is asked again."""
    return Unavailable(message, reason=UNKNOWN_ANSWER, retry_after_s=RETRY_AFTER_S)


def classify_error(error: Exception, what: str) -> FleetctlError | None:
    """Returns the error of a call that was certainly not carried out; None when the outcome is
    unknown.
    """
    match error:
        case sdk.DaytonaError() if is_page(error) and (error.status_code or 500) < 500:
            return unknown_answer(f"{what}: {error_words(error)}")
        case sdk.DaytonaAuthenticationError():
            return Unavailable(
                f"{what}: Daytona does not accept the key",
                reason="KeyRefused",
                retry_after_s=KEY_AFTER_S,
                hint=KEY_HINT,
                account=True,
            )
        case sdk.DaytonaForbiddenError():
            return _forbidden_error(what, error_words(error))
        case sdk.DaytonaError() if is_rate_limit(error):
            after_s = retry_after_s(error.headers)
            message = f"{what}: {error_words(error)}"
            return Unavailable(message, reason=RATE_LIMITED, retry_after_s=after_s)
        case sdk.DaytonaBadRequestError():
            return _bad_request(f"{what}: {error_words(error)}")
        case sdk.DaytonaUnprocessableEntityError():
            return Refused(f"{what}: {error_words(error)}", hint="change the template")
        case sdk.DaytonaNotFoundError():
            return unknown_answer(f"{what}: {error_words(error)}")
    return None


def retry_after_s(headers: Mapping[str, object]) -> float:
    """Each throttler has a header of its own, such as `Retry-After-sandbox-create`."""
    parts = [
        float(str(value))
        for name, value in headers.items()
        if name.lower().startswith("retry-after") and str(value).replace(".", "", 1).isdigit()
    ]
    return max(parts, default=RATE_AFTER_S)


def is_not_found(error: BaseException) -> bool:
    """Returns whether Daytona itself reports that there is no such object. A gateway or a proxy
    before it has pages of its own with the same status, and does not know Daytona's objects.
    """
    if not isinstance(error, sdk.DaytonaNotFoundError):
        return False
    assert isinstance(error, sdk.DaytonaError)
    if error.source:
        return error.source in _SERVICE
    return bool(error.code)


def is_marked(body: bytes) -> bool:
    """Returns whether a raw answer has Daytona's own mark, as `is_not_found` requires."""
    try:
        document = json.loads(body)
    except ValueError:
        return False
    return isinstance(document, dict) and bool(
        document.get("source") in _SERVICE or document.get("code")
    )


def is_page(error: BaseException) -> bool:
    """The answer of something on the way, made for browsers."""
    message = str(error).lower()
    return getattr(error, "source", None) is None and ("<html" in message or "<!doctype" in message)


def is_conflict(error: BaseException) -> bool:
    return isinstance(error, sdk.DaytonaConflictError)


def is_rate_limit(error: BaseException) -> bool:
    """Returns whether Daytona limits the rate of calls; for uploads the SDK reports it by the
    status alone.
    """
    by_status = isinstance(error, sdk.DaytonaError) and error.status_code == 429
    return by_status or isinstance(error, sdk.DaytonaRateLimitError)


def sdk_errors() -> tuple[type[Exception], ...]:
    """Returns the classes of errors that the SDK raises, or that leak from what it is made of; all
    else is a bug of ours. For an `except`: they are loaded by the first error.
    """
    import aiohttp

    return (sdk.DaytonaError, aiohttp.ClientError, OSError)


def is_of_the_sdk(error: Exception) -> bool:
    return isinstance(error, sdk_errors())


def error_words(error: Exception) -> str:
    """Returns the error's own words on one line, if they are short; a proxy's page is left out."""
    message = " ".join(str(error).split())
    prefix, page, _ = message.partition("<")
    if page and "html" in message.lower():
        message = f"{prefix}HTTP {getattr(error, 'status_code', None) or 'error'} from a proxy"
    return (message or type(error).__name__)[:WORDS_MAX].rstrip(". ")


def _forbidden_error(what: str, message: str) -> FleetctlError:
    if not _SUSPENDED.search(message):
        return Unavailable(
            f"{what}: the key has no access: {message}",
            reason="AccessDenied",
            retry_after_s=KEY_AFTER_S,
            hint=KEY_HINT,
            account=True,
        )
    if _MONEY.search(message):
        return Unavailable(
            f"{what}: {message}",
            reason="SpendLimit",
            retry_after_s=SUSPENDED_AFTER_S,
            hint="add credits at app.daytona.io/dashboard/billing; what waits goes on by itself",
            account=True,
        )
    return Unavailable(
        f"{what}: {message}",
        reason="Suspended",
        retry_after_s=SUSPENDED_AFTER_S,
        hint="app.daytona.io/dashboard says what it asks for; what waits goes on by itself",
        account=True,
    )


def _bad_request(message: str) -> FleetctlError:
    if _QUOTA.search(message):
        return Unavailable(
            message,
            reason="Quota",
            retry_after_s=QUOTA_AFTER_S,
            hint=_quota_hint(message),
            account=True,
        )
    if _NO_RUNNERS.search(message):
        return Unavailable(message, reason="NoCapacity", retry_after_s=RETRY_AFTER_S)
    if _REGION.search(message):
        return Refused(message, hint="name another target in the Provider object's `account`")
    if _NOT_READY.search(message):
        return Unavailable(message, reason="VolumeNotReady", retry_after_s=VOLUME_AFTER_S)
    if _SNAPSHOT.search(message):
        return Unavailable(message, reason="SnapshotNotReady", retry_after_s=RETRY_AFTER_S)
    if _OF_THE_ORDER.search(message.lower()):
        return Refused(message, hint="change the template")
    return unknown_answer(message)


def _quota_hint(message: str) -> str:
    """Returns the hint for the quota that is named."""
    limits = "limits are at app.daytona.io/dashboard/limits"
    words_ = message.lower()
    if re.search(r"maximum allowed: 0\b", words_):
        return f"this account has none of it: ask for it, or place the work elsewhere; {limits}"
    if "volume" in words_:
        return f"`fleetctl orphans` lists volumes that no object names; {limits}"
    if "snapshot" in words_:
        return f"`fleetctl orphans` lists snapshots that no object needs; {limits}"
    if "disk" in words_ or "storage" in words_:
        return f"stopped sandboxes hold disk, too; {limits}"
    return limits


class Throttle:
    """The wait of one sort of calls, which holds for all callers. Checked and set by
    `retryable_call` and by the streams.
    """

    def __init__(self) -> None:
        self._until_s = 0.0

    def check(self, what: str) -> None:
        """Raises Unavailable with the rest of the wait that Daytona asked for."""
        left_s = self._until_s - time.monotonic()
        if left_s > 0:
            message = f"{what}: Daytona takes no such calls for {left_s:.1f} s yet"
            raise Unavailable(message, reason=RATE_LIMITED, retry_after_s=left_s)

    def hear(self, error: FleetctlError | None) -> None:
        if isinstance(error, Unavailable) and error.reason == RATE_LIMITED:
            self._until_s = max(self._until_s, time.monotonic() + error.retry_after_s)


@dataclass(frozen=True, slots=True)
class Throttles:
    """One throttle for each sort of call, kept by daytona_sandboxes.py. looks: at sandboxes, one or
    many. ends: deletes. toolbox: all that goes into a sandbox. Creates have a bucket of their own,
    in which they wait in line.
    """

    looks: Throttle = field(default_factory=Throttle)
    ends: Throttle = field(default_factory=Throttle)
    toolbox: Throttle = field(default_factory=Throttle)
