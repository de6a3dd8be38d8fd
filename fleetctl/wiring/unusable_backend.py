"""A stand-in for the backend of a Provider object whose package cannot be used: not installed here,
broken, or made for another API.

Built by AccountRegistry. It refuses nothing for ever: each call reports the fault and its fix, so
that the work waits and goes on once the package is there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from fleetctl.common.errors import Unavailable
from fleetctl.common.finding import Finding, Severity
from fleetctl.controllers.model import Observation
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.base import (
    Backend,
    Foreseeing,
    FunctionAsset,
    LogChunk,
    Owned,
    Reachable,
    RunRef,
    RunRequest,
)
from fleetctl.providers.contract.terms import Contract
from fleetctl.specs.blocks.template import Template

AGAIN_S = 60.0  # between two starts of a run that waits for its provider's package
# It promises the least: what is not known of the real one is never relied on.
CONTRACT = Contract(
    visibility_bound_s=0.0,
    list_shows_finished=False,
    strong_get=False,
    max_lifetime_s=None,
    billing_quantum_s=0.0,
    calls_per_s=1.0,
    calls_at_once=1,
    call_deadline_s=60.0,
    default_parallelism=1,
    poll_s=60.0,
)


class UnusableBackend:
    """A backend that cannot do anything, and says so. what, fix: as in a Finding."""

    contract = CONTRACT

    def __init__(self, what: str, fix: str) -> None:
        self.what = what
        self.fix = fix

    async def start(self, request: RunRequest) -> str:
        raise self._error()

    async def observe(self, runs: Sequence[RunRef]) -> Sequence[Observation]:
        return ()

    async def stop(self, ref: RunRef, *, grace_s: float) -> None:
        raise self._error()

    async def owned(self) -> Sequence[Owned]:
        raise self._error()

    async def logs(
        self,
        ref: RunRef,
        *,
        offset: int = 0,
        follow: bool = False,
    ) -> AsyncIterator[LogChunk]:
        raise self._error()
        yield  # an async generator, as every provider's `logs` is

    async def ensure_volume(self, name: str) -> None:
        raise self._error()

    async def remove_volume(self, name: str) -> None:
        raise self._error()

    async def ensure_function(self, asset: FunctionAsset) -> None:
        raise self._error()

    async def remove_function(self, name: str) -> None:
        raise self._error()

    async def remove_scratch(self, uid: str, *, keep_logs: bool) -> None:
        raise self._error()

    def revision(
        self,
        uid: str,
        template: Template,
        template_hash: str,
    ) -> str:
        return ""

    def usd_per_s(self, template: Template) -> float | None:
        return None

    def lacks(self, template: Template) -> str:
        return ""  # it may be installed: the work waits

    async def foresee(self, template: Template, account: Account) -> AsyncIterator[Finding]:
        yield Finding((), self.what, self.fix, Severity.LATER)

    async def reach(self) -> None:
        raise self._error()

    async def close(self) -> None:
        """Does no work: nothing was opened."""

    def _error(self) -> Unavailable:
        return Unavailable(
            self.what,
            hint=self.fix,
            reason="NoProvider",
            retry_after_s=AGAIN_S,
            account=True,
        )


_: type[Backend] = UnusableBackend
__: type[Foreseeing] = UnusableBackend
___: type[Reachable] = UnusableBackend
