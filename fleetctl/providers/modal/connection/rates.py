"""What Modal asks of this account: the packaged table, and the account's own rates where it tells
them. Called by modal/provider.py for each run's price, which must not wait for Modal.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING

from fleetctl.common.errors import FleetctlError
from fleetctl.common.text import HOUR_S
from fleetctl.providers.modal.connection.errors import asking
from fleetctl.providers.prices import table as prices
from fleetctl.providers.prices.table import FUNCTION, SANDBOX, PriceTable
from fleetctl.specs.blocks.template import Template

if TYPE_CHECKING:
    import modal

log = logging.getLogger("fleetctl.providers")

PROVIDER, LIVE = "modal", "live"
FRESH_S = 86_400.0  # rates change a few times a year
AGAIN_S = 3_600.0  # after Modal did not tell them; not every plan may ask
CALL_S = 30.0
_RUNTIMES = {"": FUNCTION, "_sandbox": SANDBOX}
_PARTS = {"cpu_hour_cost": "cpu", "mem_gib_hour_cost": "memory"}
_GPU = "gpu_hour_cost_"
_GPUS = {"a10g": "A10", "a100_40gb": "A100", "a100_80gb": "A100-80GB", "rtx6000": "RTX-PRO-6000"}


class Rates:
    """ask: the account's rates as Modal names them."""

    def __init__(self, ask: Callable[[], Awaitable[Mapping[str, Decimal]]]) -> None:
        self._ask = ask
        self.table: PriceTable = prices.load(PROVIDER)
        self._again_at_s = 0.0
        self._asking: asyncio.Task[None] | None = None

    def usd_per_s(self, template: Template, *, clustered: bool = False) -> float | None:
        """The price of one container; `table.updated` tells how old the price is: a date, or
        `live`. clustered: it is one of several nodes, which are containers of a function.
        """
        runtime = FUNCTION if template.is_function or clustered else SANDBOX
        return self.table.usd_per_s(template.sandbox_resources, runtime=runtime)

    @property
    def live(self) -> bool:
        return self.table.updated == LIVE

    def refresh_soon(self) -> None:
        """Ask in the background, at most daily. Called where Modal is talked to anyway."""
        if self._asking is None and time.monotonic() >= self._again_at_s:
            self._again_at_s = time.monotonic() + AGAIN_S
            self._asking = asyncio.ensure_future(self.refresh())
            self._asking.add_done_callback(self._asked)

    async def refresh(self) -> None:
        """An account that does not tell its rates keeps the packaged ones."""
        try:
            reply = await self._ask()
        except FleetctlError as error:
            log.info("rates not told", extra={"error": str(error)})
            return
        self.table = merged(prices.load(PROVIDER), reply)
        self._again_at_s = time.monotonic() + FRESH_S

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    def _asked(self, done: asyncio.Task[None]) -> None:
        self._asking = None
        if not done.cancelled() and done.exception() is not None:
            log.error("rates not read", exc_info=done.exception())


async def of_account(client: modal.Client) -> Mapping[str, Decimal]:
    """Raises Refused and Unavailable."""
    import modal

    async with asking("the rates of the account cannot be read", deadline_s=CALL_S):
        workspace = modal.Workspace.from_context(client=client)
        rates: Mapping[str, Decimal] = await workspace.billing.rates.aio()
        return rates


def merged(table: PriceTable, rates: Mapping[str, Decimal]) -> PriceTable:
    """The table with every price that an account told; what it did not tell stays as it was."""
    runtimes = {name: dict(parts) for name, parts in table.runtimes.items()}
    gpu = dict(table.gpu)
    unknown, known = [], False
    for key, usd_per_s in _positive(rates):
        runtime, part = _place(key)
        if part:
            runtimes[runtime][part], known = usd_per_s, True
        elif key.startswith(_GPU) and key.removeprefix(_GPU):
            name = key.removeprefix(_GPU)
            gpu[_GPUS.get(name, name.upper().replace("_", "-"))], known = usd_per_s, True
        else:
            unknown.append(key)
    if unknown:
        log.info("rates with unknown names", extra={"names": sorted(unknown)})
    # Without one that is known the table is as old as it was, and says so.
    return replace(table, updated=LIVE, runtimes=runtimes, gpu=gpu) if known else table


def _positive(rates: Mapping[str, Decimal]) -> Iterator[tuple[str, float]]:
    """The prices in USD per second. What is no price is left out: a wrong one could hide what a run
    costs.
    """
    for key, value in rates.items():
        try:
            each = float(Decimal(value) / HOUR_S)
        except (InvalidOperation, TypeError, ValueError):
            continue
        if 0 < each < float("inf"):
            yield key, each


def _place(key: str) -> tuple[str, str]:
    """(runtime, part) of a processor's or a memory's price."""
    for suffix, runtime in _RUNTIMES.items():
        part = _PARTS.get(key.removesuffix(suffix) if suffix else key)
        if part and (not suffix or key.endswith(suffix)):
            return runtime, part
    return "", ""
