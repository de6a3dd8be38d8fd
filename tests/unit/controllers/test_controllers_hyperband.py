"""Early termination: the decisions of the field's own library, and what a curve keeps of a trial.

hyperband.jsonl has values alone, computed by `sweeps` 0.3.0: of each run whether it still runs and
what it logged (null: nothing that counts), then who stops, the bands and their thresholds, negated
for `maximize`.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from fleetctl.controllers.history.curves import MetricCurves
from fleetctl.controllers.model import Metric
from fleetctl.controllers.trials.early_terminate import (
    find_threshold,
    judge_early_end,
    list_rungs,
    parse_stop,
)
from fleetctl.specs.search.config import EarlyTerminate

CASES = [json.loads(line) for line in Path(__file__).with_name("hyperband.jsonl").open()]
HYPERBAND = {"type": "hyperband"}


def reports(values: Sequence[float | str | None], name: str = "loss") -> list[Metric]:
    found = [(seq, float(value)) for seq, value in enumerate(values) if value is not None]
    return [Metric(seq, 0, name, value, 0.0) for seq, value in found]


def played(
    case: dict[str, Any], early: EarlyTerminate, *, shuffled: int | None = None
) -> MetricCurves:
    """All reports of all runs; shuffled: one at a time, in a random order between the runs."""
    curves = MetricCurves("loss", maximize=case["goal"] == "maximize", bands=early.bands)
    parts = [(index, it) for index, (_, run) in enumerate(case["runs"]) for it in reports(run)]
    if shuffled is not None:
        order = [index for index, _ in parts]
        random.Random(shuffled).shuffle(order)
        each = {index: iter([it for at, it in parts if at == index]) for index in order}
        parts = [(index, next(each[index])) for index in order]
    for index, it in parts:
        curves.take(index, f"run-{index}", [it])
    return curves


@pytest.mark.parametrize("number", [n for n, it in enumerate(CASES) if "refused" not in it])
def test_who_stops_is_who_stops_at_wandb(number: int) -> None:
    case = CASES[number]
    early = EarlyTerminate(**case["early_terminate"])
    for shuffled in (None, number):
        curves = played(case, early, shuffled=shuffled)
        running = [index for index, (runs, _) in enumerate(case["runs"]) if runs]
        assert [it for it in running if judge_early_end(curves, f"run-{it}", early)] == case["stop"]
        if case["bands"]:
            assert list(early.bands[: len(case["bands"])]) == case["bands"]
            passed = [curves.passed(band) for band in range(len(case["bands"]))]
            found = [find_threshold(it, early.eta) if it else math.inf for it in passed]
            assert found == [float(it) for it in case["thresholds"]]


@pytest.mark.parametrize("number", [n for n, it in enumerate(CASES) if "refused" in it])
def test_what_the_library_breaks_on_is_refused(number: int) -> None:
    with pytest.raises(ValidationError):
        EarlyTerminate(**CASES[number]["early_terminate"])


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({}, "needs `min_iter`, or `max_iter` and `s`"),
        ({"max_iter": 9}, "`max_iter` needs `s`"),
        ({"max_iter": 9, "min_iter": 3}, "`max_iter` needs `s`"),
        ({"max_iter": 2, "s": 1, "eta": 3}, "no trial would be compared"),
        ({"min_iter": 1, "eta": 1}, "greater than 1"),
    ],
)
def test_a_wrong_rule_is_refused_in_words(spec: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        EarlyTerminate(**HYPERBAND, **spec)


def test_a_huge_eta_has_the_bands_that_numbers_can_count() -> None:
    bands = EarlyTerminate(**HYPERBAND, min_iter=1, eta=1e200).bands
    assert bands == (1, int(1e200))


def test_why_a_trial_stops_names_value_band_and_threshold() -> None:
    early = EarlyTerminate(**HYPERBAND, min_iter=2, eta=2)
    curves = MetricCurves("loss", maximize=False, bands=early.bands)
    curves.take(0, "a", reports([5, 2.4]))
    curves.take(1, "b", reports([5, 3.1]))
    assert judge_early_end(curves, "a", early) is None
    found = judge_early_end(curves, "b", early)
    # Of two, the second best is the threshold: a trial that is level goes on.
    assert found is None
    curves.take(2, "c", reports([1, 1, 1]))
    found = judge_early_end(curves, "b", early)
    assert found is not None
    assert found.message == "value 3.1 at iteration 2 is above 2.4"
    upwards = MetricCurves("acc", maximize=True, bands=early.bands)
    for index, value in enumerate((0.9, 0.8, 0.1)):
        upwards.take(index, str(index), reports([0, value], "acc"))
    found = judge_early_end(upwards, "2", early)
    assert found is not None
    assert found.message == "value 0.1 at iteration 2 is below 0.8"
    assert list_rungs(upwards, early)[0] == {"iteration": 2, "trials": 3, "threshold": 0.8}


def test_another_attempt_begins_anew_and_what_is_told_again_counts_once() -> None:
    curves = MetricCurves("loss", maximize=False, bands=(1, 3))
    assert curves.take(0, "first", reports([1.0]))
    assert not curves.take(0, "first", reports([1.0, 2.0]))
    assert not curves.take(0, "second", reports([None, None]))
    assert curves.passed(0) == [1.0]
    assert curves.take(0, "second", reports([7.0]))
    assert curves.of("first") is None
    curve = curves.of("second")
    assert curve is not None
    assert (curve.run, curve.count, curves.passed(0)) == ("second", 1, [7.0])


def stepped(steps: Sequence[int], values: Sequence[float]) -> list[Metric]:
    told = enumerate(zip(steps, values, strict=True))
    return [Metric(seq, step, "loss", value, 0.0) for seq, (step, value) in told]


def test_an_attempt_that_resumes_goes_on_with_the_history_before_its_first_step() -> None:
    curves = MetricCurves("loss", maximize=False, bands=(1, 3, 5))
    curves.take(0, "first", stepped([10, 20, 30, 40, 50], [9.0, 8.0, 7.0, 1.0, 5.0]))
    # From the checkpoint of step 30: steps 40 and 50 are reported once more.
    assert curves.take(0, "second", stepped([40], [6.0]))
    curves.take(0, "second", stepped([40, 50], [6.0, 4.0]))
    curve = curves.of("second")
    assert curve is not None and curves.of("first") is None
    assert (curve.count, curve.at, curve.last, curve.best) == (5, [9.0, 7.0, 4.0], 4.0, 1.0)
    assert [list(curves.passed(band)) for band in range(3)] == [[9.0], [7.0], [4.0]]
    # A third one resumes where the second one had resumed; a fourth begins from nothing.
    curves.take(0, "third", stepped([50], [3.0]))
    assert [list(curves.passed(band)) for band in range(3)] == [[9.0], [7.0], [3.0]]
    curves.take(0, "fourth", stepped([10], [2.0]))
    assert [list(curves.passed(band)) for band in range(3)] == [[2.0], [], []]


@pytest.mark.parametrize("steps", [[0, 1, 2, 0, 1, 2], [it * it for it in range(200)]])
def test_steps_that_go_back_or_follow_no_rule_say_nothing_of_a_checkpoint(steps: list[int]) -> None:
    curves = MetricCurves("loss", maximize=False, bands=(1,))
    curves.take(0, "first", stepped(steps, [1.0] * len(steps)))
    curves.take(0, "second", stepped([max(steps) + 1], [2.0]))
    assert curves.passed(0) == [2.0]


@pytest.mark.parametrize("seed", range(20))
def test_the_steps_below_a_checkpoint_are_counted(seed: int) -> None:
    rng = random.Random(seed)
    steps, at = [], 0
    for _ in range(rng.randint(1, 8)):
        by = rng.randint(1, 9)
        for _ in range(rng.randint(1, 6)):
            steps.append(at)
            at += by
    resumed = rng.randint(0, at)
    curves = MetricCurves("loss", maximize=False, bands=())
    curves.take(0, "first", stepped(steps, [1.0] * len(steps)))
    curves.take(0, "second", stepped([resumed], [1.0]))
    curve = curves.of("second")
    assert curve is not None and curve.count == sum(it < resumed for it in steps) + 1


def test_a_target_is_reached_by_any_report_and_no_other_is_a_reason_to_look() -> None:
    curves = MetricCurves("acc", maximize=True, bands=(), target=0.9)
    assert not curves.take(0, "a", reports([0.5, 0.6, math.nan], "acc"))
    assert not curves.reached
    assert curves.take(1, "b", reports([0.95, 0.1], "acc"))
    assert curves.reached


@pytest.mark.parametrize("strict", [True, False])
def test_what_a_stop_says_is_read_back(strict: bool) -> None:
    early = EarlyTerminate.model_validate({**HYPERBAND, "min_iter": 1000, "strict": strict})
    curves = MetricCurves("loss", maximize=False, bands=early.bands)
    for index, value in enumerate((1e-7, 2.5)):
        curves.take(index, f"{index}", reports([value] * 1001))
    found = judge_early_end(curves, "1", early)
    assert found is not None and parse_stop(found.message) == (1000, 2.5)
    assert parse_stop("asked to stop") is None
