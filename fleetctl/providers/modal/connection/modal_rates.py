"""Modal's prices for this account: the packaged table, and the account's own rates where Modal
returns them. Called by modal/modal_provider.py for each run's price, which must not wait for Modal.
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
from fleetctl.providers.modal.connection.modal_errors import retryable_call
from fleetctl.providers.prices import price_table as prices
from fleetctl.providers.prices.price_table import FUNCTION, SANDBOX, PriceTable
from fleetctl.specs.blocks.template import Template

if TYPE_CHECKING:
    import modal

log = logging.getLogger("fleetctl.providers")

PROVIDER = "modal"
LIVE = "live"
FRESH_S = 86_400.0  # rates change a few times a year
AGAIN_S = 3_600.0  # after Modal returned no rates; not every plan may ask
CALL_S = 30.0
_RUNTIMES = {"": FUNCTION, "_sandbox": SANDBOX}
_PARTS = {"cpu_hour_cost": "cpu", "mem_gib_hour_cost": "memory"}
_GPU = "gpu_hour_cost_"
_GPUS = {"a10g": "A10", "a100_40gb": "A100", "a100_80gb": "A100-80GB", "rtx6000": "RTX-PRO-6000"}


class Rates:
    """ask: the account's rates as Modal names them."""

    def __init__(self, ask: Callable[[], Awaitable[Mapping[str, Decimal]]]) -> None:
        self._ask = ask
        self.table: PriceTable = prices.load_prices(PROVIDER)
        self._again_at_s = 0.0
        self._asking: asyncio.Task[None] | None = None

    def usd_per_s(self, template: Template, *, clustered: bool = False) -> float | None:
        """Returns the price of a container; `table.updated` is the price's age: a date, or `live`.
        clustered: whether the container is a node of several, which are containers of a function.
        """
        runtime = FUNCTION if template.is_function or clustered else SANDBOX
        return self.table.usd_per_s(template.sandbox_resources, runtime=runtime)

    @property
    def live(self) -> bool:
        return self.table.updated == LIVE

    def refresh_soon(self) -> None:
        """Asks in the background, at most daily. Called beside other calls to Modal."""
        if self._asking is None and time.monotonic() >= self._again_at_s:
            self._again_at_s = time.monotonic() + AGAIN_S
            self._asking = asyncio.ensure_future(self.refresh())
            self._asking.add_done_callback(self._finish_read)

    async def refresh(self) -> None:
        """Fetches the account's rates; an account without its own keeps the packaged ones."""
        try:
            reply = await self._ask()
        except FleetctlError as error:
            log.info("rates not reported", extra={"error": str(error)})
            return
        self.table = merge_rates(prices.load_prices(PROVIDER), reply)
        self._again_at_s = time.monotonic() + FRESH_S

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    def _finish_read(self, done: asyncio.Task[None]) -> None:
        self._asking = None
        if not done.cancelled() and done.exception() is not None:
            log.error("rates not read", exc_info=done.exception())


async def of_account(client: modal.Client) -> Mapping[str, Decimal]:
    """Returns the billing rates of an account, by name. Raises Refused and Unavailable."""
    import modal

    async with retryable_call("the rates of the account cannot be read", deadline_s=CALL_S):
        workspace = modal.Workspace.from_context(client=client)
        rates: Mapping[str, Decimal] = await workspace.billing.rates.aio()
        return rates


def merge_rates(table: PriceTable, rates: Mapping[str, Decimal]) -> PriceTable:
    """Returns the table with all prices that an account reports; the other prices stay."""
    runtimes = {name: dict(parts) for name, parts in table.runtimes.items()}
    gpu = dict(table.gpu)
    unknown = []
    known = False
    for key, usd_per_s in _positive_rates(rates):
        runtime, part = _price_position(key)
        if part:
            runtimes[runtime][part], known = usd_per_s, True
        elif key.startswith(_GPU) and key.removeprefix(_GPU):
            name = key.removeprefix(_GPU)
            gpu[_GPUS.get(name, name.upper().replace("_", "-"))], known = usd_per_s, True
        else:
            unknown.append(key)
    if unknown:
        log.info("rates with unknown names", extra={"names": sorted(unknown)})
    # Without a known rate the table keeps its date.
    if known:
        return replace(
            table,
            updated=LIVE,
            runtimes=runtimes,
            gpu=gpu,
        )
    return table


def _positive_rates(rates: Mapping[str, Decimal]) -> Iterator[tuple[str, float]]:
    """Yields the prices in USD per second. A rate that is no price is left out: a wrong one could
    hide the cost of a run.
    """
    for key, value in rates.items():
        try:
            each = float(Decimal(value) / HOUR_S)
        except (InvalidOperation, TypeError, ValueError):
            continue
        if 0 < each < float("inf"):
            yield key, each


def _price_position(key: str) -> tuple[str, str]:
    """Returns (runtime, part) of a processor's or a memory's price."""
    for suffix, runtime in _RUNTIMES.items():
        part = _PARTS.get(key.removesuffix(suffix) if suffix else key)
        if part and (not suffix or key.endswith(suffix)):
            return runtime, part
    return "", ""
