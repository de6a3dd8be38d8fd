"""Calls of a provider's service: each with a deadline of ours and its pace, repeated where the
provider throttles it, with a failure to connect shared for a while.

Used around calls of an SDK, whose errors the provider's predicates know. Only callers without an
engine, such as the sessions of interpreters, repeat throttled calls: runs are asked for again by
the engine. Each sort of call has a token bucket.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from copy import copy
from dataclasses import fields
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from fleetctl.common.errors import FleetctlError, Refused, Unavailable
from fleetctl.common.token_level import TokenLevel

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


RETRY_AFTER_S = 5.0  # a guess at the time after which a silent service may reply again

FAILED_FOR_S = 5.0

Settings = TypeVar("Settings", bound="DataclassInstance")

RATE_LIMITED = "RateLimited"  # the reason that every provider has for it
AGAIN_S, AGAIN_MAX_S = 0.1, 5.0  # the least, also for shorter waits: others wait for the same

log = logging.getLogger("fleetctl.providers")
T = TypeVar("T")


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


class LastFailure:
    """The last failure to connect, raised again for a while: a hundred starts that wait in turn
    must not wait for a hundred deadlines.
    """

    def __init__(self) -> None:
        self._known: tuple[float, FleetctlError] | None = None

    def remember(self, error: FleetctlError) -> None:
        self._known = asyncio.get_running_loop().time() + FAILED_FOR_S, error

    def forget(self) -> None:
        self._known = None

    def raise_again(self) -> None:
        """Raises the last error again while it holds, without the traceback of its first time."""
        if self._known is None:
            return
        until_s, error = self._known
        if asyncio.get_running_loop().time() >= until_s:
            self._known = None
            return
        raise copy(error)


def read_settings(
    settings: type[Settings],
    prefix: str,
    environ: Mapping[str, str],
) -> Settings:
    """Field `call_s` is the variable `<prefix>CALL_S`. Raises Refused for a value that is no
    positive number.
    """
    names = {field.name: f"{prefix}{field.name.upper()}" for field in fields(settings)}
    return settings(
        **{
            field: _parse_number(name, environ[name])
            for field, name in names.items()
            if environ.get(name)
        }
    )


def _parse_number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise Refused(
            f"{name} is `{text}`; it must be a number above 0",
            hint=f"unset {name} for the default",
        )
    return value


async def unless_throttled(call: Callable[[], Awaitable[T]], *, patience_s: float) -> T:
    """Returns the call's result. A throttled call was not carried out, and is repeated after the
    wait that the provider named. Raises the call's errors, also the last throttling that would
    outlast patience_s.
    """
    loop = asyncio.get_running_loop()
    until_s = loop.time() + patience_s
    least_s = AGAIN_S
    while True:
        try:
            return await call()
        except Unavailable as error:
            delay_s = max(error.retry_after_s, least_s)
            if error.reason != RATE_LIMITED or loop.time() + delay_s > until_s:
                raise
            log.info("throttled", extra={"error": str(error), "again_after_s": delay_s})
        least_s = min(2 * least_s, AGAIN_MAX_S)
        await asyncio.sleep(delay_s)


class TokenBucket:
    """rate_per_s and burst as the provider grants them."""

    def __init__(self, rate_per_s: float, burst: float) -> None:
        self._level = TokenLevel(rate_per_s, burst)
        self._held_until_s = 0.0

    async def take(self) -> None:
        """Waits for a token. First come, first served: each caller takes its turn at once."""
        now_s = asyncio.get_running_loop().time()
        delay_s = max(self._level.line_up(now_s), self._held_until_s - now_s)
        if delay_s <= 0:
            return
        try:
            await asyncio.sleep(delay_s)
        except asyncio.CancelledError:
            self._level.give_back()
            raise

    def hold(self, delay_s: float) -> None:
        """Lets no call pass for delay_s seconds, as the provider asked."""
        until_s = asyncio.get_running_loop().time() + delay_s
        self._held_until_s = max(self._held_until_s, until_s)


class ToleratedAnswer(AbstractContextManager[None, bool]):
    """A context that ends quietly at such an answer; every other error passes.

    are: predicates of an error, such as `is_not_found`.
    """

    def __init__(self, *are: Callable[[Exception], bool]) -> None:
        self._are = are

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        return isinstance(error, Exception) and any(is_it(error) for is_it in self._are)
