"""Packaged price tables: what a sandbox costs a second."""

from __future__ import annotations

from typing import Any

import pytest

from fleetctl.providers.prices import price_table
from fleetctl.providers.prices.price_table import load_prices
from fleetctl.specs.blocks.placement import Prices
from fleetctl.specs.blocks.resources import Resources


def usd_per_h(provider: str, runtime: str = "sandbox", **resources: Any) -> float | None:
    each = load_prices(provider).usd_per_s(Resources.model_validate(resources), runtime=runtime)
    return None if each is None else round(each * 3600, 3)


@pytest.mark.parametrize(
    ("provider", "resources", "usd"),
    [
        ("modal", {"cpu": 1, "memory": "1Gi"}, 0.166),
        ("modal", {}, 0.021),
        ("modal", {"gpu": "A100:4", "cpu": 1, "memory": "1Gi"}, 8.561),
        ("modal", {"gpu": "a100-40gb"}, 2.12),
        ("modal", {"gpu": "H100!"}, 3.97),
        ("daytona", {"cpu": 4, "memory": "8Gi"}, 0.331),
        ("daytona", {"disk": "10Gi"}, 0.067),
        ("daytona", {"gpu": "H100"}, 4.017),
    ],
)
def test_a_sandbox_costs_what_its_resources_cost(
    provider: str, resources: dict[str, Any], usd: float
) -> None:
    assert usd_per_h(provider, **resources) == usd


def test_a_functions_processor_is_cheaper_and_its_gpu_is_not() -> None:
    assert usd_per_h("modal", "function", cpu=1, memory="1Gi") == 0.055
    gpu = [
        usd_per_h("modal", runtime, gpu="B200", cpu=0.001) for runtime in ("sandbox", "function")
    ]
    assert gpu[0] is not None and gpu[1] is not None
    assert 6.24 < gpu[1] < gpu[0] < 6.26


@pytest.mark.parametrize(
    ("provider", "runtime", "resources"),
    [
        ("modal", "sandbox", {"gpu": "any:1"}),
        ("modal", "sandbox", {"gpu": "GTX-1080"}),
        ("daytona", "function", {}),
        ("daytona", "sandbox", {"gpu": "H200"}),
    ],
)
def test_what_has_no_known_price_is_not_free(
    provider: str, runtime: str, resources: dict[str, Any]
) -> None:
    assert usd_per_h(provider, runtime, **resources) is None


@pytest.mark.parametrize("gpus", [["T4", "H100:8"], ["H100:8", "T4"], ["T4", "H100:8", "L4:2"]])
def test_a_list_of_gpus_costs_what_its_dearest_costs(gpus: list[str]) -> None:
    alone = usd_per_h("modal", "function", gpu="H100:8", cpu=1)
    assert usd_per_h("modal", "function", gpu=gpus, cpu=1) == alone
    prices = Prices.model_validate({"perHour": 1, "gpu": {"T4": 0.5, "L4": 0.8, "H100": 4}})
    of_own = price_table.usd_per_s(prices, Resources.model_validate({"gpu": gpus}))
    assert of_own == pytest.approx((1 + 8 * 4) / 3600)


def test_a_list_of_gpus_with_one_that_has_no_price_has_none() -> None:
    gpus = ["T4", "GTX-1080"]
    assert usd_per_h("modal", "function", gpu=gpus) is None
    prices = Prices.model_validate({"perHour": 1, "gpu": {"T4": 0.5}})
    assert price_table.usd_per_s(prices, Resources.model_validate({"gpu": gpus})) is None


def test_every_table_says_when_and_where_its_prices_were_read() -> None:
    for provider in ("modal", "daytona"):
        table = load_prices(provider)
        assert table.provider == provider
        assert len(table.updated.split("-")) == 3
        assert "pricing" in table.source


def test_a_provider_without_a_table_has_none() -> None:
    with pytest.raises(KeyError):
        load_prices("local")
