"""What the SDK raises, in our words.

Called by all that ask Daytona something. The SDK's names are looked up when an error is there, so
that importing this costs nothing.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from fleetctl.errors import FleetctlError, Refused, Unavailable
from fleetctl.providers.daytona.throttles import RATE_LIMITED, Throttle

KEY_HINT = "export DAYTONA_API_KEY=..., a key of app.daytona.io/dashboard/keys"
RATE_AFTER_S = 5.0  # when Daytona does not say how long
QUOTA_AFTER_S = 60.0  # runs of others end, too
SUSPENDED_AFTER_S = 120.0  # only a person can lift it; to ask costs nothing
ASK_AGAIN_S = 5.0
VOLUME_AFTER_S = 2.0
WORDS_MAX = 400
# Waited for until somebody gives the account more, or mends it: no part of the order is at fault.
OF_THE_ACCOUNT = ("Quota", "SpendLimit", "Suspended")

# A 403 is the key's fault, but for this text, which goes on with a colon and `Depleted credits`,
# `Payment method required` or `Please verify your email address`.
_SUSPENDED = re.compile(r"organization is suspended", re.IGNORECASE)
_MONEY = re.compile(r"credit|payment|billing|invoice", re.IGNORECASE)
# A 400 is the caller's mistake, but for these texts.
_QUOTA = re.compile(r"(limit|quota) exceeded", re.IGNORECASE)
_NOT_READY = re.compile(r"not in a ready state", re.IGNORECASE)
_SNAPSHOT = re.compile(r"snapshot \S+ (is (?!not valid)|not found)", re.IGNORECASE)


@asynccontextmanager
async def asking(
    what: str, *, deadline_s: float, throttle: Throttle | None = None
) -> AsyncIterator[None]:
    """A call that may be made again at will, under our own deadline: the SDK's are minutes long.

    what: such as `sandbox x cannot be ended`. throttle: of the calls of its kind. Raises Refused or
    Unavailable; a 404 and a 409 pass, because they are answers.
    """
    if throttle is not None:
        throttle.check(what)
    try:
        async with asyncio.timeout(deadline_s):
            yield
    except FleetctlError:
        raise
    except TimeoutError as error:
        raise Unavailable(f"{what}: Daytona does not answer", retry_after_s=ASK_AGAIN_S) from error
    except Exception as error:
        if is_not_found(error) or is_conflict(error) or not is_of_the_sdk(error):
            raise
        told = certain(error, what)
        if throttle is not None:
            throttle.hear(told)
        raise told or Unavailable(f"{what}: {words(error)}", retry_after_s=ASK_AGAIN_S) from error


def certain(error: Exception, what: str) -> FleetctlError | None:
    """What an error says for sure: that nothing was done. None when the outcome is unknown."""
    from daytona.common import errors as sdk

    match error:
        case sdk.DaytonaAuthenticationError():
            return Refused(f"{what}: Daytona does not accept the key", hint=KEY_HINT)
        case sdk.DaytonaForbiddenError():
            return _forbidden(what, words(error))
        case sdk.DaytonaError() if is_rate_limit(error):
            after_s = retry_after_s(error.headers)
            said = f"{what}: {words(error)}"
            return Unavailable(said, reason=RATE_LIMITED, retry_after_s=after_s)
        case sdk.DaytonaBadRequestError():
            return _bad_request(f"{what}: {words(error)}")
        case sdk.DaytonaUnprocessableEntityError():
            return Refused(f"{what}: {words(error)}", hint="change the template")
        case sdk.DaytonaNotFoundError():
            return Unavailable(f"{what}: {words(error)}", retry_after_s=ASK_AGAIN_S)
    return None


def retry_after_s(headers: Mapping[str, object]) -> float:
    """Each throttler has a header of its own, such as `Retry-After-sandbox-create`."""
    told = [
        float(str(value))
        for name, value in headers.items()
        if name.lower().startswith("retry-after") and str(value).replace(".", "", 1).isdigit()
    ]
    return max(told, default=RATE_AFTER_S)


def is_not_found(error: BaseException) -> bool:
    from daytona.common.errors import DaytonaNotFoundError

    return isinstance(error, DaytonaNotFoundError)


def is_conflict(error: BaseException) -> bool:
    from daytona.common.errors import DaytonaConflictError

    return isinstance(error, DaytonaConflictError)


def is_rate_limit(error: BaseException) -> bool:
    """Of uploads the SDK says it by the status alone."""
    from daytona.common.errors import DaytonaError, DaytonaRateLimitError

    by_status = isinstance(error, DaytonaError) and error.status_code == 429
    return by_status or isinstance(error, DaytonaRateLimitError)


def is_of_the_sdk(error: Exception) -> bool:
    """Raised by the SDK, or leaked by what it is made of; all else is a bug of ours."""
    import aiohttp
    from daytona.common.errors import DaytonaError

    return isinstance(error, DaytonaError | aiohttp.ClientError | OSError)


def words(error: Exception) -> str:
    """The error's own words on one line, as far as they are short; a proxy's page is not told."""
    said = " ".join(str(error).split())
    prefix, page, _ = said.partition("<")
    if page and "html" in said.lower():
        said = f"{prefix}HTTP {getattr(error, 'status_code', None) or 'error'} from a proxy"
    return (said or type(error).__name__)[:WORDS_MAX].rstrip(". ")


def _forbidden(what: str, said: str) -> FleetctlError:
    if not _SUSPENDED.search(said):
        return Refused(f"{what}: the key has no access: {said}", hint=KEY_HINT)
    if _MONEY.search(said):
        return Unavailable(
            f"{what}: {said}",
            reason="SpendLimit",
            retry_after_s=SUSPENDED_AFTER_S,
            hint="add credits at app.daytona.io/dashboard/billing; what waits goes on by itself",
        )
    return Unavailable(
        f"{what}: {said}",
        reason="Suspended",
        retry_after_s=SUSPENDED_AFTER_S,
        hint="app.daytona.io/dashboard says what it asks for; what waits goes on by itself",
    )


def _bad_request(said: str) -> FleetctlError:
    if _QUOTA.search(said):
        return Unavailable(
            said,
            reason="Quota",
            retry_after_s=QUOTA_AFTER_S,
            hint="stopped sandboxes hold disk, too; limits are at app.daytona.io/dashboard/limits",
        )
    if _NOT_READY.search(said):
        return Unavailable(said, reason="VolumeNotReady", retry_after_s=VOLUME_AFTER_S)
    if _SNAPSHOT.search(said):
        return Unavailable(said, reason="SnapshotNotReady", retry_after_s=ASK_AGAIN_S)
    return Refused(said, hint="change the template")
