"""Bounds a call to a provider's service by a deadline of ours, and translates its errors.

Called by the error module of each provider, which knows the errors of its SDK.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fleetctl.common.errors import FleetctlError, Unavailable

RETRY_AFTER_S = 5.0  # a guess at the time after which a silent service may reply again


@asynccontextmanager
async def translated_call(
    what: str,
    *,
    service: str,
    deadline_s: float,
    translate: Callable[[Exception], FleetctlError | None],
    hint: str = "",
) -> AsyncIterator[None]:
    """Runs the calls of a `with` block. Raises Unavailable once `deadline_s` seconds have passed.

    what: the failure, for messages, such as `sandbox x cannot be ended`. translate: returns the
    error to raise for an error of the SDK; None lets it pass, for a reply such as that an object
    does not exist, and for a bug of ours.
    """
    try:
        async with asyncio.timeout(deadline_s):
            yield
    except FleetctlError:
        raise
    except TimeoutError as error:
        raise Unavailable(
            f"{what}: {service} does not answer", retry_after_s=RETRY_AFTER_S, hint=hint
        ) from error
    except Exception as error:  # `translate` knows the SDK's
        if (translated := translate(error)) is None:
            raise
        raise translated from error
