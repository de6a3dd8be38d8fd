"""Which of a list of GPUs a sandbox has, by the names of its devices."""

from __future__ import annotations

import pytest

from fleetctl.providers.prices.price_table import possible_gpus
from fleetctl.specs.blocks.resources import Gpu
from tests.emulators.modal.driver import NAMES


def left(listed: list[str], *devices: str) -> list[str]:
    return [str(it) for it in possible_gpus(Gpu.model_validate(listed), devices).each]


@pytest.mark.parametrize(
    ("listed", "devices", "possible_ones"),
    [
        (["T4", "H100:8"], ["Tesla T4"], ["T4:1"]),
        (["T4", "H100:8"], ["NVIDIA H100 80GB HBM3"] * 8, ["H100:8"]),
        (["H100:1", "H100:8"], ["NVIDIA H100 80GB HBM3"], ["H100:1"]),
        (["l4", "L40S"], ["NVIDIA L4"], ["l4:1"]),
        (["A100-40GB", "A100-80GB"], ["NVIDIA A100-SXM4-40GB"], ["A100-40GB:1"]),
        (["A100-40GB", "A100-80GB"], ["NVIDIA A100 80GB PCIe"], ["A100-80GB:1"]),
        (["RTX-PRO-6000", "B300"], [NAMES["RTX-PRO-6000"]], ["RTX-PRO-6000:1"]),
        (["A10G", "H100"], ["NVIDIA A10"], ["A10G:1"]),
    ],
)
def test_an_entry_is_known_by_its_devices(
    listed: list[str], devices: list[str], possible_ones: list[str]
) -> None:
    assert left(listed, *devices) == possible_ones


@pytest.mark.parametrize(
    ("listed", "devices", "possible_ones"),
    [
        # Modal gives an H200 for an H100 now and then, and at its price, but not for an `H100!`.
        (["H100", "H200"], ["NVIDIA H200"], ["H100:1", "H200:1"]),
        (["H100!", "H200"], ["NVIDIA H200"], ["H200:1"]),
        (["A100", "A100-80GB"], ["NVIDIA A100-SXM4-80GB"], ["A100:1", "A100-80GB:1"]),
        (["L4", "L40S", "T4"], ["NVIDIA L40S"], ["L4:1", "L40S:1"]),
        (["any", "T4", "B200"], ["Tesla T4"], ["any:1", "T4:1"]),
        # What nobody told, or what fits no entry, says nothing.
        (["T4", "H100:8"], [], ["T4:1", "H100:8"]),
        (["T4", "H100:8"], ["NVIDIA H100 80GB HBM3"], ["T4:1", "H100:8"]),
        (["T4", "H100"], ["Tesla T4", "NVIDIA H100"], ["T4:1", "H100:1"]),
        (["T4", "H100"], ["GRID K2"], ["T4:1", "H100:1"]),
    ],
)
def test_what_is_in_doubt_stays_in_the_list(
    listed: list[str], devices: list[str], possible_ones: list[str]
) -> None:
    assert left(listed, *devices) == possible_ones
