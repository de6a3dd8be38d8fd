"""Makes a call to a service, under our own deadline. Called by each provider's `asking`, which
knows what its SDK raises.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fleetctl.common.errors import FleetctlError, Unavailable

ASK_AGAIN_S = 5.0


@asynccontextmanager
async def translated_call(
    what: str,
    *,
    service: str,
    deadline_s: float,
    translate: Callable[[Exception], FleetctlError | None],
    hint: str = "",
) -> AsyncIterator[None]:
    """what: such as `sandbox x cannot be ended`. translate: returns fleetctl's error for an SDK's
    error; None for an answer, such as that an object does not exist, and for a bug of ours: these
    pass.
    """
    try:
        async with asyncio.timeout(deadline_s):
            yield
    except FleetctlError:
        raise
    except TimeoutError as error:
        raise Unavailable(
            f"{what}: {service} does not answer", retry_after_s=ASK_AGAIN_S, hint=hint
        ) from error
    except Exception as error:
        if (translated := translate(error)) is None:
            raise
        raise translated from error
