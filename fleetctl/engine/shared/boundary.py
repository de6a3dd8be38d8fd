"""Calls that may end in any way: what is known of their outcome, and a log of what broke."""

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
    """Nothing is known of the outcome of a call that hung, broke, or was never answered.

    why: a sentence for people.
    """

    why: str


async def guarded(work: Awaitable[T], *, what: str, key: str) -> T | NoAnswer:
    """What a provider's call returned, or a sentence why nothing is known of its outcome.

    Refused, Unavailable and cancellation pass through: they mean something to the caller.
    """
    try:
        return await work
    except (Refused, Unavailable):
        raise
    except TimeoutError:
        return NoAnswer("the provider did not answer in time")
    except Exception as error:
        log.exception("provider call failed", extra={"what": what, "key": key})
        return NoAnswer(f"the {what} ended with {type(error).__name__}")


async def reported(work: Awaitable[T], *, what: str) -> T | None:
    """What `work` returned; None when a bug of ours ended it; the log has its traceback."""
    try:
        return await work
    except FleetctlError:
        raise
    except Exception:
        log.exception("work failed", extra={"what": what})
        return None
