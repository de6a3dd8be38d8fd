"""Guards calls that may end in any way: returns their known outcome, and logs errors."""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeVar

from fleetctl.common.errors import FleetctlError, Refused, Unavailable

log = logging.getLogger("fleetctl.engine")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """The unknown outcome of a call that hung, broke, or got no reply.

    why: a sentence for users.
    """

    why: str


async def guard_call(
    work: Awaitable[T],
    *,
    what: str,
    key: str,
) -> T | NoAnswer:
    """Returns the result of a provider's call, or a sentence why its outcome is unknown.

    Refused, Unavailable and cancellation pass through: they have a meaning for the caller.
    """
    try:
        return await work
    except (Refused, Unavailable):
        raise
    except TimeoutError:
        return NoAnswer("the provider did not answer in time")
    except Exception as error:  # a bug of a provider stops no other (P7)
        log.exception("provider call failed", extra={"what": what, "key": key})
        return NoAnswer(f"the {what} failed with {type(error).__name__}")


async def run_reported(work: Awaitable[T], *, what: str) -> T | None:
    """Returns the result of `work`; None when a bug of ours ended it; the log has its traceback."""
    try:
        return await work
    except FleetctlError:
        raise
    except Exception:  # a bug of a provider stops no other (P7)
        log.exception("work failed", extra={"what": what})
        return None
