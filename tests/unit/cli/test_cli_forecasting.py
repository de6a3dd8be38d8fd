"""What an apply says of places and costs: of new work that is not simply local and free."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fleetctl.apply.cost.estimate import CostForecast, note_estimates
from fleetctl.apply.plan.build_plan import forecast_costs
from fleetctl.apply.propose import propose_changes
from fleetctl.apply.request import ApplyOptions, digests_of
from fleetctl.cli.apply.request import cost_lines_of
from fleetctl.controllers.model import RunState
from fleetctl.engine.capacity.price_book import may_cost
from fleetctl.manifest import Manifest
from fleetctl.stores.read.read_only import open_readonly
from fleetctl.wiring.account_registry import AccountRegistry
from tests.unit.engine.test_engine_desired import manifest
from tests.unit.planning.test_planning_report import job, stored

PRICED = manifest("Provider", "modal", {"prices": {"perHour": 3.6}, "limits": {"maxConcurrent": 3}})


def told(home: Path, *manifests: Manifest) -> dict[str, CostForecast]:
    providers = AccountRegistry(home, store_id="", notify=lambda run: None).backends
    with open_readonly(home) as seen:
        changes = propose_changes(seen, manifests, ApplyOptions(), 0.0)
    return forecast_costs(home, providers, changes)


def lines(found: CostForecast) -> tuple[str, ...]:
    """As they cross the socket."""
    return tuple(cost_lines_of(json.loads(json.dumps(found.planned))))


def job_at(*places: dict[str, Any], **fields: Any) -> Manifest:
    return job(8, placement={"ordered": list(places)}, timeout_s=100, **fields)


def test_new_work_says_where_it_runs_and_what_it_costs_at_most(tmp_path: Path) -> None:
    desired = job_at(
        {"provider": "modal"}, {"provider": "daytona", "maxPricePerHour": 0.01},
        {"provider": "local"}, parallelism=5, budget={"maxCost": 25},
    )  # fmt: skip
    found = told(tmp_path / "home", PRICED, desired)["batchjob/job"]
    assert lines(found) == (
        "placement  modal (3 slots), then local (2 slots); "
        "not daytona: $0.0666/h is above its maxPricePerHour of $0.0100/h",
        # All eight may run at the dearest place that takes them.
        "estimate   at most $0.89  (no past tasks; timeoutSeconds 100 and 11 s to end)"
        "   cap $25.00",
    )
    assert (found.estimate.expected_usd, round(found.estimate.high_usd or 0.0, 6)) == (None, 0.888)


def test_the_past_tells_the_range(tmp_path: Path) -> None:
    home = tmp_path / "home"
    done = [(index, RunState.SUCCEEDED, 10.0 * (index + 1)) for index in range(3)]
    stored(home, [job(3)], *done)
    found = told(home, PRICED, job(4, name="twin"))["batchjob/twin"]
    assert lines(found)[1] == "estimate   $0.0800  (range $0.0480-$0.11; from 3 past tasks)"
    assert round(found.estimate.expected_usd or 0.0, 6) == 0.08


def test_a_budget_of_many_objects_says_what_is_left_of_it(tmp_path: Path) -> None:
    team = manifest("Budget", "team", {"maxCost": 9})
    found = told(tmp_path / "home", PRICED, team, job(2, timeout_s=100))["batchjob/job"]
    assert lines(found)[1].endswith("   budget/team $9.00 left")


def test_plain_local_work_and_an_update_say_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    local = manifest("BatchJob", "job", {"completions": 2, "template": {"python": "pass"}})
    assert lines(told(home, local)["batchjob/job"]) == ()
    stored(home, [job(3)])
    changed = told(home, PRICED, job(5, timeout_s=100))["batchjob/job"]
    assert (lines(changed), changed.estimate.known) == ((), True)


def test_another_estimate_does_not_move_the_world_under_a_saved_plan(tmp_path: Path) -> None:
    home = tmp_path / "home"
    stored(home, [job(3)])
    with open_readonly(home) as seen:
        changes = propose_changes(seen, [job(5, timeout_s=100)], ApplyOptions(), 0.0)
    found = told(home, PRICED, job(5, timeout_s=100))
    estimated = note_estimates(changes, found)
    assert estimated != changes
    assert digests_of(estimated) == digests_of(changes)


def test_work_that_nothing_bounds_says_so(tmp_path: Path) -> None:
    found = told(tmp_path / "home", PRICED, job(2))["batchjob/job"]
    assert lines(found)[1] == "estimate   unknown  (no past tasks and no timeoutSeconds)"
    assert not found.estimate.known


def test_a_function_that_keeps_containers_warm_says_what_they_cost_an_hour(tmp_path: Path) -> None:
    desired = {"provider": "modal", "minContainers": 2, "resources": {"gpu": "H100:8"}}
    function, team = (
        manifest("Function", "warm", desired),
        manifest("Budget", "team", {"maxCost": 9}),
    )
    providers = AccountRegistry(tmp_path / "home", store_id="", notify=lambda run: None).backends
    assert may_cost([function], providers, {})
    found = told(tmp_path / "home", team, function)["function/warm"]
    assert lines(found) == (
        "cost       $63.20/h while it exists: 2 containers stay warm, whether or not anything runs"
        "   budget/team $9.00 left",
    )
    assert not found.estimate.known


def test_a_function_that_keeps_none_is_not_reckoned(tmp_path: Path) -> None:
    providers = AccountRegistry(tmp_path / "home", store_id="", notify=lambda run: None).backends
    for desired in ({"provider": "modal"}, {"provider": "local", "minContainers": 2}):
        assert not may_cost([manifest("Function", "cold", desired)], providers, {})
