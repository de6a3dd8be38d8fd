"""The front of several metrics: what it holds, what a sweep makes of it, and what goes with it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from pydantic import ValidationError

from fleetctl.controllers.history.history import History
from fleetctl.controllers.history.scores import ParetoFront, Values
from fleetctl.controllers.kinds.sweep import SweepController
from fleetctl.controllers.trials.trial_warnings import FRONT_SHOWN_MAX, front_status
from fleetctl.specs.kinds.sweep import SweepSpec


def beaten(values: Values, by: Values) -> bool:
    return values != by and all(a <= b for a, b in zip(by, values, strict=True))


def front_of(units: list[Values]) -> ParetoFront:
    front = ParetoFront()
    for index, values in enumerate(units):
        front.add(index, values)
    return front


@pytest.mark.parametrize("metrics", [2, 3, 4])
@pytest.mark.parametrize("seed", range(20))
def test_the_front_is_what_no_other_unit_beats(metrics: int, seed: int) -> None:
    draw = Random(seed)
    # Few values, so that there are equal ones and equal units.
    units = [tuple(float(draw.randrange(6)) for _ in range(metrics)) for _ in range(40)]
    wanted = [at for at, it in enumerate(units) if not any(beaten(it, other) for other in units)]
    found = list(front_of(units))
    assert sorted(index for index, _ in found) == wanted
    assert [values for _, values in found] == sorted(units[index] for index in wanted)


def test_ten_thousand_units_that_are_all_on_it_are_quick() -> None:
    count = 10_000
    assert len(front_of([(float(it), float(-it)) for it in range(count)])) == count


def spec(**changes: Any) -> dict[str, Any]:
    search = {"method": "grid", "parameters": {"x": {"values": [1, 2]}}}
    metrics = [{"name": "loss"}, {"name": "acc", "goal": "maximize"}]
    template = {"python": "pass"}
    return {"search": search, "metrics": metrics, "template": template, **changes}


def sweep() -> SweepController:
    return SweepController(SweepSpec.model_validate(spec()), {})


def test_a_trial_needs_all_metrics_wherever_it_told_them() -> None:
    assert sweep().score('{"loss": 2}', {}) is None
    assert sweep().score('{"loss": 2}', {"acc": 0.5}) == (2.0, -0.5)
    assert sweep().score('{"loss": 2, "acc": null}', {"loss": 3.0}) is None


def test_the_status_has_the_values_as_they_were_told() -> None:
    history = History(sweep().limits)
    for index, score in enumerate([(2.0, -0.5), (1.0, -0.25), (3.0, -0.25)]):
        history.front = history.front or ParetoFront()
        history.front.add(index, score)
    status = sweep().summary(history)
    assert "best" not in status and status["frontSize"] == 2
    assert status["metrics"][1] == {"name": "acc", "goal": "maximize"}
    assert status["front"] == [
        {"index": 1, "metrics": {"loss": 1.0, "acc": 0.25}},
        {"index": 0, "metrics": {"loss": 2.0, "acc": 0.5}},
    ]


def test_a_status_has_room_for_some_of_a_long_front() -> None:
    front = front_of([(float(it), float(-it)) for it in range(1000)])
    status = front_status(front, [("a", "minimize"), ("b", "minimize")])
    assert status["frontSize"] == 1000 and len(status["front"]) == FRONT_SHOWN_MAX


GRID = {"method": "grid", "parameters": {"x": {"values": [1]}}}
BANDS = {"type": "hyperband", "min_iter": 3}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"metrics": [{"name": "loss"}]}, "at least 2"),
        ({"metrics": [{"name": "loss"}] * 2}, "two of `metrics` have the same name"),
        ({"metrics": [{"name": "a"}, {"name": "b", "target": 1}]}, "and not `target`"),
        ({"search": GRID | {"method": "bayes"}}, "a bayes search follows one `metric`"),
        ({"search": GRID | {"early_terminate": BANDS}}, "`early_terminate` compares trials by one"),
        ({"search": GRID | {"metric": {"name": "y"}}}, "`metrics` replace"),
    ],
)
def test_what_goes_with_one_metric_alone_is_refused_in_a_sentence(
    changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValidationError, match=said):
        SweepSpec.model_validate(spec(**changes))
