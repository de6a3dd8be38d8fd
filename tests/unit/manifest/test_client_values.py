"""Values of everyday Python in manifests that a program makes."""

from __future__ import annotations

import itertools
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

import fleetctl
from fleetctl import BatchJob, Sweep
from fleetctl.manifest.problems import ManifestErrors
from fleetctl.specs.kinds.registry import KINDS


class Size(Enum):
    SMALL = "small"


def items_of(*values: Any) -> list[Any]:
    rows = [{"v": value} for value in values]
    job = BatchJob("x", tasks={"items": rows}, template={"python": "SUBMIT(v=v)"})
    return [item["v"] for item in job.manifest()["spec"]["tasks"]["items"]]  # type: ignore[index]


def test_tuples_paths_and_enums_are_values() -> None:
    assert items_of((1, (2, "a")), Path("/a"), Size.SMALL, {1}) == [
        [1, [2, "a"]],
        "/a",
        "small",
        [1],
    ]


def test_iterators_are_lists() -> None:
    rows = ({"a": a, "b": b} for a, b in itertools.product((1, 2), range(2)))
    job = BatchJob("x", tasks={"items": rows}, template={"script": "x"})
    assert job.manifest()["spec"]["tasks"]["items"][3] == {"a": 2, "b": 1}  # type: ignore[index]


def test_numpy_is_as_good_as_numbers_and_lists() -> None:
    numpy = pytest.importorskip("numpy")
    assert items_of(numpy.int64(3), numpy.float32(0.5), numpy.arange(2), numpy.bool_(True)) == [
        3, 0.5, [0, 1], True,
    ]  # fmt: skip
    sweep = Sweep(
        "s",
        search={
            "method": "grid",
            "metric": {"name": "loss", "goal": "minimize"},
            "parameters": {"lr": {"values": numpy.logspace(-3, -1, 3)}},
        },
        template={"python": "SUBMIT(loss=lr)"},
    )
    assert sweep.manifest()["spec"]["search"]["parameters"]["lr"]["values"] == [  # type: ignore[index]
        0.001, 0.01, 0.1,
    ]  # fmt: skip


def test_what_no_rule_knows_is_named() -> None:
    with pytest.raises(ManifestErrors, match="v"):
        items_of(object())


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_class(kind: str) -> None:
    found = getattr(fleetctl, kind)
    assert found.kind == kind and found.__doc__
    assert kind in fleetctl.__all__
