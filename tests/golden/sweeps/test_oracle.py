"""Ours beside `sweeps` 0.3.0, W&B's own library: what it takes, the points of its grids, and what
it draws. grids.jsonl, verdicts.jsonl and draws.json are its values; `make oracle` makes them anew.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import NormalDist
from typing import Any

import pytest

from fleetctl.controllers.trials.points import iterate_points, random_point
from fleetctl.manifest import Document, ManifestErrors, load_manifests
from fleetctl.specs.search.config import Search
from tests.golden.sweeps.configurations import CONTINUOUS_MANY, DRAWS, GRIDS, VERDICTS
from tests.golden.sweeps.shapes import shapes

HERE = Path(__file__).parent
TAKEN: dict[str, bool] = dict(map(json.loads, (HERE / "verdicts.jsonl").open()))
POINTS: dict[str, list[Any]] = dict(map(json.loads, (HERE / "grids.jsonl").open()))
SAMPLES: dict[str, Any] = json.loads((HERE / "draws.json").read_text())

# Taken there and refused here, each for a reason.
STRICTER = {
    **dict.fromkeys(("mixed bounds", "mixed bounds, the greatest whole"), "`wandb sweep` refuses"),
    **dict.fromkeys(("a bell without width", "beta of nought"), "it draws NaN there"),
    "nested exponents of e": "it forgets to check them",
    "nested probabilities above one": "it forgets to check them",
    "an unknown macro": "its agent drops it without a word",
    "early ends without a metric": "it fails when it first looks",
    "hyperband without a band": "it fails when it first looks",
    "hyperband of a broken count": "it fails when it first looks",
    "hyperband of both, without looks": "it fails when it first looks",
    "a job": "Launch is not supported",
}
# The points of these differ; see the test.
OTHER_POINTS = {"equal numbers in lists"}
DRAWN = 2000
ALPHA = 0.001


def _log(low: float, high: float) -> Any:
    return lambda x: math.log(x / low) / math.log(high / low)


_BELL = NormalDist()
# The distribution functions, where they have a closed form.
EXACT: dict[str, Any] = {
    "uniform": lambda x: (x + 1.5) / 5.5,
    "uniform, inferred": lambda x: (x - 0.5) / 0.25,
    "log_uniform_values": _log(1e-6, 1e-1),
    "log_uniform_values above 1": _log(2.0, 3e4),
    "inv_log_uniform_values": _log(0.01, 10.0),
    "normal": NormalDist(3, 2).cdf,
    "normal by default": _BELL.cdf,
    "log_normal": lambda x: NormalDist(-2, 0.5).cdf(math.log(x)),
    "log_normal by default": lambda x: _BELL.cdf(math.log(x)),
    "beta": lambda x: 1 - (1 - x) ** 5 * (1 + 5 * x),
    "beta, at its ends": lambda x: 2 / math.pi * math.asin(math.sqrt(x)),
    "beta by default": lambda x: x,
}


def refusal(config: Any) -> str:
    """Why ours does not take it, or ""."""
    spec = {"search": config, "trials": 4}
    manifest = {"apiVersion": "fleetctl.dev/v1alpha1", "kind": "Sweep", "metadata": {"name": "x"}}
    text = json.dumps({**manifest, "spec": spec})
    try:
        load_manifests([Document("x.yaml", text, str(HERE))])
    except ManifestErrors as error:
        return str(error)
    return ""


def test_the_same_configurations_are_taken() -> None:
    differ = {
        name
        for name, config in {**VERDICTS, **GRIDS}.items()
        if TAKEN[name] == bool(refusal(config))
    }
    assert differ == set(STRICTER)
    assert all(TAKEN[name] for name in STRICTER)  # nothing is taken here that is refused there
    assert len(TAKEN) >= 121


@pytest.mark.parametrize("name", sorted(POINTS))
def test_a_grid_has_the_same_points_in_the_same_order(name: str) -> None:
    config = GRIDS.get(name) or shapes()[name].search
    ours = [_rounded(it) for it in iterate_points(Search.model_validate(config), 0)]
    theirs = [_rounded(it) for it in POINTS[name]]
    if name in OTHER_POINTS:
        # 1 and 1.0 are one value here, wherever they stand, and two there within a list.
        assert (ours, theirs) == ([{"a": [1]}, {"a": [2]}], [{"a": [1]}, {"a": [1]}, {"a": [2]}])
    else:
        assert ours == theirs


@pytest.mark.parametrize("name", list(DRAWS)[:CONTINUOUS_MANY])
def test_a_continuous_parameter_has_the_same_distribution(name: str) -> None:
    ours, theirs = sorted(_drawn(name)), sorted(SAMPLES[name])
    # Theirs are quantiles of 10,000 draws: a step function as fine as that, which adds its step.
    limit = math.sqrt(-math.log(ALPHA / 2) / 2 * (1 / DRAWN + 1 / 10_000)) + 1 / len(theirs)
    assert apart(ours, lambda at: bisect_right(theirs, at) / len(theirs)) < limit


@pytest.mark.parametrize("name", EXACT)
def test_a_continuous_parameter_has_the_distribution_of_its_name(name: str) -> None:
    limit = math.sqrt(-math.log(ALPHA / 2) / 2 / DRAWN)
    assert apart(sorted(_drawn(name)), EXACT[name]) < limit


@pytest.mark.parametrize("name", list(DRAWS)[CONTINUOUS_MANY:])
def test_values_that_can_be_counted_come_as_often(name: str) -> None:
    ours = Counter(json.dumps(_rounded(it)) for it in _drawn(name))
    theirs = {json.dumps(_rounded(json.loads(it))): many for it, many in SAMPLES[name].items()}
    assert chi_squared(ours, theirs) < 1


def chi_squared(ours: Mapping[str, int], theirs: Mapping[str, int]) -> float:
    """Of two samples, in shares of what chance allows; values that are rare in both as one."""
    many, more = sum(ours.values()), sum(theirs.values())
    cells: dict[str, tuple[int, int]] = {}
    for value in {*ours, *theirs}:
        found = ours.get(value, 0), theirs.get(value, 0)
        cell = value if sum(found) * many / (many + more) >= 5 else "rare"
        before = cells.get(cell, (0, 0))
        cells[cell] = before[0] + found[0], before[1] + found[1]
    if len(cells) == 1:
        return 0.0
    left, right = math.sqrt(more / many), math.sqrt(many / more)
    total = sum((left * a - right * b) ** 2 / (a + b) for a, b in cells.values())
    # The limit by Wilson and Hilferty's cube.
    free = len(cells) - 1
    share = 2 / (9 * free)
    limit = free * (1 - share + NormalDist().inv_cdf(1 - ALPHA) * math.sqrt(share)) ** 3
    return total / limit


def apart(sample: Sequence[float], cdf: Any) -> float:
    """Kolmogorov and Smirnov's distance of a sorted sample from a distribution."""
    many = len(sample)
    return max(
        max((at + 1) / many - cdf(value), cdf(value) - at / many) for at, value in enumerate(sample)
    )


@cache
def _drawn(name: str) -> list[Any]:
    search = Search.model_validate({"method": "random", "parameters": {"x": DRAWS[name]}})
    return [random_point(search, 1, index)["x"] for index in range(DRAWN)]


def _rounded(value: Any) -> Any:
    """A number by its value, whether it was written as 3 or 3.0, to 9 digits."""
    if isinstance(value, float):
        near = float(f"{value:.9g}")
        return int(near) if near.is_integer() else near
    if isinstance(value, list):
        return [_rounded(it) for it in value]
    if isinstance(value, dict):
        return {key: _rounded(it) for key, it in value.items()}
    return value
