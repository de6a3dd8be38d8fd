"""What Modal asks: the packaged table, and an account's own rates on top of it."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Mapping
from decimal import Decimal
from typing import Any

import pytest

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.providers.modal.connection.modal_rates import Rates, merge_rates
from fleetctl.providers.prices.price_table import load_prices
from fleetctl.specs.blocks.template import Template

# As a real account was told them in September 2026, per hour.
TOLD = {
    "cpu_hour_cost": Decimal("0.0473"),
    "cpu_hour_cost_sandbox": Decimal("0.1419"),
    "mem_gib_hour_cost": Decimal("0.008"),
    "mem_gib_hour_cost_sandbox": Decimal("0.024"),
    "gpu_hour_cost_a100_40gb": Decimal("2.10"),
    "gpu_hour_cost_a100_80gb": Decimal("2.50"),
    "gpu_hour_cost_a10g": Decimal("1.10"),
    "gpu_hour_cost_rtx6000": Decimal("3.03"),
    "gpu_hour_cost_h100": Decimal("1.00"),
}


def usd_per_h(rates: Rates, gpu: str | None = None, **fields: object) -> float | None:
    resources = {"cpu": 1, "memory": "1Gi", **({"gpu": gpu} if gpu else {})}
    template = Template.model_validate({"script": "x", "resources": resources, **fields})
    each = rates.usd_per_s(template)
    return None if each is None else round(each * 3600, 4)


def telling(*answers: Mapping[str, Decimal] | Exception) -> tuple[Rates, list[None]]:
    asked: list[None] = []

    async def ask() -> Mapping[str, Decimal]:
        asked.append(None)
        answer = answers[min(len(asked), len(answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer

    return Rates(ask), asked


def in_loop(story: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """A test that is a coroutine."""

    @functools.wraps(story)
    def test(**given: Any) -> None:
        async def play() -> None:
            await story(**given)

        asyncio.run(play())

    return test


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@in_loop
async def test_until_an_account_tells_its_rates_the_dated_table_holds() -> None:
    rates, _ = telling(TOLD)
    assert rates.table.updated == load_prices("modal").updated
    dated = usd_per_h(rates, "H100")
    await rates.refresh()
    assert rates.table.updated == "live"
    assert dated is not None and dated > 3.9
    assert usd_per_h(rates, "H100") == round(1.0 + 0.1419 + 0.024, 4)


@in_loop
async def test_a_function_costs_a_third_of_a_sandbox_but_for_its_gpu() -> None:
    rates, _ = telling(TOLD)
    await rates.refresh()
    assert usd_per_h(rates) == 0.1659
    assert usd_per_h(rates, runtime="function") == 0.0553
    assert usd_per_h(rates, "H100", runtime="function") == 1.0553


@pytest.mark.parametrize(
    ("gpu", "usd"),
    [("A100", 2.1), ("A100-80GB", 2.5), ("A10", 1.1), ("A10G", 1.1), ("RTX-PRO-6000", 3.03)],
)
@in_loop
async def test_gpus_are_found_under_modals_own_names(gpu: str, usd: float) -> None:
    rates, _ = telling(TOLD)
    await rates.refresh()
    assert usd_per_h(rates, gpu, runtime="function") == round(usd + 0.0553, 4)


@in_loop
async def test_what_an_account_does_not_tell_keeps_its_dated_price() -> None:
    rates, _ = telling({"cpu_hour_cost": Decimal("0.05")})
    before = usd_per_h(rates, "B200")
    await rates.refresh()
    assert usd_per_h(rates, "B200") == before


@pytest.mark.parametrize("nonsense", ["0", "-1", "NaN", "Infinity"])
def test_what_is_no_price_is_not_taken_for_one(nonsense: str) -> None:
    table = merge_rates(load_prices("modal"), {"gpu_hour_cost_h100": Decimal(nonsense)})
    assert table.gpu == load_prices("modal").gpu


def test_unknown_names_are_told_once_and_change_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="fleetctl.providers"):
        table = merge_rates(
            load_prices("modal"), {"egress_gib_cost": Decimal(1), "gpu_hour_cost_": Decimal(1)}
        )
    assert (table.gpu, table.runtimes) == (load_prices("modal").gpu, load_prices("modal").runtimes)
    assert [record.message for record in caplog.records] == ["rates with unknown names"]
    assert vars(caplog.records[0])["names"] == ["egress_gib_cost", "gpu_hour_cost_"]


@in_loop
async def test_rates_are_asked_for_once_a_day_and_nobody_waits_for_them() -> None:
    rates, asked = telling(TOLD)
    for _ in range(3):
        rates.refresh_soon()
        await settled()
    assert len(asked) == 1
    assert rates.table.updated == "live"


@pytest.mark.parametrize("error", [Refused("not in this plan"), Unavailable("away")])
@in_loop
async def test_an_account_that_does_not_tell_is_not_asked_again_at_once(error: Exception) -> None:
    rates, asked = telling(error)
    for _ in range(3):
        rates.refresh_soon()
        await settled()
    assert len(asked) == 1
    assert rates.table.updated == load_prices("modal").updated
    await rates.close()


def test_rates_of_which_none_is_known_are_no_live_ones() -> None:
    table = load_prices("modal")
    assert merge_rates(table, {}) == table
    assert merge_rates(table, {"moon_hour_cost": Decimal(1)}) == table
