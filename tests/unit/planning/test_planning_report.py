"""A plan over a store with a past: what it counts, what it costs, and by what."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleetctl.apply.cost.offers import market_of
from fleetctl.apply.plan.build_plan import build_report
from fleetctl.apply.plan.plan_report import PlanAction, PlanReport, RiskType
from fleetctl.apply.propose import propose_changes
from fleetctl.apply.request import ApplyOptions
from fleetctl.apply.write.store_changes import store_changes
from fleetctl.controllers.model import Resource, Run, RunState
from fleetctl.manifest import Manifest
from fleetctl.specs.content import template_hash
from fleetctl.specs.kinds.batchjob import BatchJobSpec
from fleetctl.specs.values.hashing import params_hash
from fleetctl.stores.read.read_only import open_readonly
from fleetctl.stores.sqlite.store import SqliteStore, open_store
from fleetctl.wiring.account_registry import AccountRegistry
from tests.unit.engine.fake_world import ManualClock
from tests.unit.engine.test_engine_desired import manifest

NOW_S = 1_000.0
MODAL = {"provider": "modal"}


def job(count: int, *, name: str = "job", timeout_s: int | None = None, **fields: Any) -> Manifest:
    template: dict[str, Any] = {"python": "pass", **fields.pop("template", {})}
    if timeout_s is not None:
        template["timeoutSeconds"] = timeout_s
    spec = {"completions": count, "template": template, "placement": MODAL, **fields}
    return manifest("BatchJob", name, spec)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def planned(home: Path, *manifests: Manifest, order: ApplyOptions | None = None) -> PlanReport:
    with open_readonly(home) as stored:
        changes = propose_changes(stored, manifests, order or ApplyOptions(), NOW_S)
        providers = AccountRegistry(home, store_id="", notify=lambda run: None).backends
        return build_report(stored, changes, market_of(stored, changes, providers), NOW_S)


def stored(home: Path, manifests: Sequence[Manifest], *runs: tuple[int, RunState, float]) -> None:
    """The specs, and runs of the first one: (index, state, seconds that it took so far)."""
    store: SqliteStore = open_store(home, ManualClock())
    store_changes(store, propose_changes(store, manifests, ApplyOptions(), NOW_S), NOW_S)
    row: Resource = next(it for it in store.resources.list() if it.name == manifests[0].name)
    spec = BatchJobSpec.model_validate_json(row.spec)
    with store.transaction():
        for index, state, took_s in runs:
            name = f"{row.uid}-{index}"
            begun = Run(
                name, row.uid, index, 1, RunState.STARTING, "modal", name,
                template_hash(spec.template, spec.placement), "{}", params_hash({}), 0.0,
                usd_per_s=0.001,
            )  # fmt: skip
            ended_at_s = None if state is RunState.RUNNING else NOW_S
            store.runs.begin([begun])
            store.runs.advance(
                replace(begun, state=state, started_at_s=NOW_S - took_s, ended_at_s=ended_at_s)
            )
    store.close()


def test_without_a_store_everything_is_created_and_nothing_is_made(home: Path) -> None:
    [found] = planned(home, job(4, timeout_s=120)).objects
    assert found.action is PlanAction.CREATE
    assert found.work is not None and found.work.new == 4
    assert found.work.now.expected is None
    assert found.work.now.high is not None and found.work.now.high > 0
    assert found.work.lasts is not None
    assert found.work.lasts.basis == "no past tasks; timeoutSeconds 120 and 11 s to end"
    assert not home.exists()


def test_what_is_done_is_kept_and_its_durations_tell_what_the_rest_costs(home: Path) -> None:
    done = [(index, RunState.SUCCEEDED, 10.0) for index in range(3)]
    stored(home, [job(4)], *done)
    found = planned(home, job(10))
    [it] = found.objects
    assert it.work is not None
    assert (it.action, it.work.kept, it.work.new, it.work.replaced) == (PlanAction.UPDATE, 3, 7, 0)
    price = it.work.places[0].judged.usd_per_s
    assert price is not None
    assert it.work.now.expected == pytest.approx(7 * 10.0 * price)
    assert it.work.total.expected == pytest.approx(3 * 10.0 * 0.001 + 7 * 10.0 * price)
    assert it.work.lasts is not None and it.work.lasts.basis == "from 3 past tasks"


def test_another_object_with_the_same_template_tells_durations_too(home: Path) -> None:
    stored(home, [job(1)], (0, RunState.SUCCEEDED, 30.0))
    [it] = planned(home, job(2, name="twin")).objects
    assert it.work is not None and it.work.lasts is not None
    assert (it.work.first_s, it.work.lasts.basis) == (30.0, "from 1 past task")


def test_a_changed_template_replaces_running_work_and_says_what_was_spent(home: Path) -> None:
    stored(home, [job(3)], (0, RunState.SUCCEEDED, 10.0), (1, RunState.RUNNING, 50.0))
    [it] = planned(home, job(3, template={"env": {"A": "b"}})).objects
    assert it.work is not None and it.work.lasts is not None
    assert it.action is PlanAction.REPLACE
    assert (it.work.kept, it.work.new, it.work.replaced) == (1, 1, 1)
    assert it.work.lost_usd == pytest.approx(0.05)
    assert it.work.lasts.basis == "from 1 past task of another template"


def test_a_plan_has_its_risks_as_a_comparison_has_them(home: Path) -> None:
    stored(home, [job(3)], (0, RunState.SUCCEEDED, 10.0), (1, RunState.RUNNING, 50.0))
    endless = job(2, name="new", template={"env": {"A": "c"}}, budget={"maxCost": 1})
    found = planned(home, endless, job(3, template={"env": {"A": "b"}}))
    bounds = "its budget: $0.00 of $1.00 used, nothing bounds this apply, $1.00 left"
    assert [(it.sort, it.key, it.sentence) for it in found.risks] == [
        (RiskType.WORK, "batchjob/job", "1 running task would be stopped"),
        (RiskType.BUDGET, "batchjob/new", f"{bounds}: it may stop at the cap"),
        (RiskType.UNKNOWN, "batchjob/new", "nothing bounds what it costs"),
    ]


def test_an_unchanged_object_is_counted_and_costs_nothing_new(home: Path) -> None:
    stored(home, [job(3)], (0, RunState.RUNNING, 5.0))
    found = planned(home, job(3))
    assert (found.changes, found.count(PlanAction.KEEP), found.cost.expected) == ((), 1, 0.0)


def test_a_provider_object_in_the_same_files_sets_the_price(home: Path) -> None:
    own = manifest("Provider", "modal", {"prices": {"perHour": 3.6}})
    found = planned(home, own, job(2, timeout_s=100))
    assert found.cost.high == pytest.approx(2 * (100 + 11) * 0.001)
    assert found.prices == ("modal: provider/modal",)


@pytest.mark.parametrize("gpus", [["T4:1", "H100:8"], ["H100:8", "T4:1"]])
def test_a_list_of_gpus_is_planned_at_its_dearest_and_told_from_its_cheapest(
    home: Path, gpus: list[str]
) -> None:
    def template(gpu: Any) -> dict[str, Any]:
        return {"runtime": "function", "resources": {"gpu": gpu}}

    either = planned(home, job(3, timeout_s=3600, template=template(gpus)))
    dear = planned(home, job(3, timeout_s=3600, template=template("H100:8")))
    cheap = planned(home, job(3, timeout_s=3600, template=template("T4")))
    assert either.cost == dear.cost
    [it] = [it.work for it in either.objects if it.work is not None]
    assert it.gpu == " or ".join(gpus)
    assert cheap.cost.high is not None
    assert it.places[0].least_usd_per_s == pytest.approx(cheap.cost.high / 3 / (3600 + 11))


def test_past_durations_and_a_list_of_gpus_make_a_range(home: Path) -> None:
    function = {"runtime": "function", "resources": {"gpu": ["T4", "H100:8"]}}
    past = [(index, RunState.SUCCEEDED, 10.0) for index in range(3)]
    stored(home, [job(3, template=function)], *past)
    now = planned(home, job(4, template=function)).cost
    assert now.expected == now.high == pytest.approx(10.0 * 8 * 0.001097, rel=0.01)
    assert now.low == pytest.approx(10.0 * 0.000164, rel=0.02)


def test_a_function_that_keeps_containers_warm_says_what_they_cost(home: Path) -> None:
    desired = {"provider": "modal", "minContainers": 2, "resources": {"gpu": "H100:8"}}
    team = manifest("Budget", "team", {"maxCost": 9})
    [_, it] = planned(home, team, manifest("Function", "warm", desired)).objects
    assert it.warm is not None and it.warm.usd_per_s is not None
    assert it.warm.containers == 2
    assert it.warm.usd_per_s == pytest.approx(2 * 8 * 0.001097, rel=0.01)
    assert [(cap.owner, cap.max_usd) for cap in it.warm.caps] == [("budget/team", 9.0)]


@pytest.mark.parametrize(
    "desired", [{"provider": "modal"}, {"provider": "local", "minContainers": 2}]
)
def test_a_function_that_keeps_nothing_or_nothing_dear_says_nothing(
    home: Path, desired: dict[str, Any]
) -> None:
    [it] = planned(home, manifest("Function", "cold", desired)).objects
    assert it.warm is None


def test_a_function_whose_price_nobody_knows_is_not_free(home: Path) -> None:
    desired = {"provider": "modal", "minContainers": 1, "resources": {"gpu": "any"}}
    [it] = planned(home, manifest("Function", "dark", desired)).objects
    assert it.warm is not None and it.warm.usd_per_s is None


def test_a_function_of_the_same_files_says_what_its_tasks_run_in(home: Path) -> None:
    function = manifest("Function", "gpu", {"provider": "modal", "resources": {"gpu": "H100"}})
    calls = manifest(
        "BatchJob", "calls",
        {"placement": MODAL, "template": {"python": "pass", "function": "gpu"}},
    )  # fmt: skip
    *_, it = planned(home, function, calls).objects
    assert it.work is not None
    assert it.work.gpu == "H100:1"
    price = it.work.places[0].judged.usd_per_s
    assert price is not None and price * 3600 > 3


def test_a_plan_reads_what_a_controller_is_writing(home: Path) -> None:
    store = open_store(home, ManualClock())
    store_changes(store, propose_changes(store, [job(2)], ApplyOptions(), NOW_S), NOW_S)
    assert planned(home, job(2)).count(PlanAction.KEEP) == 1
    store.close()
    assert json.loads(json.dumps(planned(home, job(2)).cost.expected)) == 0.0


def limited(most: int) -> Manifest:
    return manifest("Provider", "modal", {"limits": {"maxConcurrent": most}})


def test_slots_are_those_that_are_free_now(home: Path) -> None:
    live = [(index, RunState.RUNNING, 5.0) for index in range(2)]
    stored(home, [job(2), limited(5)], *live)
    [it] = planned(home, job(9, name="other", parallelism=9, timeout_s=60)).objects
    assert it.work is not None
    assert [place.slots for place in it.work.places] == [3]
    # What the change itself ends makes room for what it starts.
    [it] = planned(home, job(9, parallelism=9, timeout_s=60, template={"env": {"A": "b"}})).objects
    assert it.work is not None and it.work.replaced == 2
    assert [place.slots for place in it.work.places] == [5]


def test_where_nothing_is_free_it_is_said_and_reckoned_with_what_will_be(home: Path) -> None:
    live = [(index, RunState.RUNNING, 5.0) for index in range(2)]
    stored(home, [job(2), limited(2)], *live)
    [it] = planned(home, job(9, name="other", parallelism=9, timeout_s=60)).objects
    assert it.work is not None and it.work.now.high is not None and it.work.now.high > 0
    [place] = it.work.places
    assert place.slots == 2
    assert place.judged.why == "the only candidate; full now: its limit of 2 sandboxes is reached"


def test_what_runs_over_now_is_planned_where_it_would_go(home: Path) -> None:
    live = [(index, RunState.RUNNING, 5.0) for index in range(2)]
    stored(home, [job(2), limited(3)], *live)
    both = {"ordered": [{"provider": "modal"}, {"provider": "local"}]}
    other = job(3, name="other", parallelism=3, timeout_s=60, placement=both)
    [it] = planned(home, other).objects
    assert it.work is not None
    assert [(place.judged.provider, place.slots) for place in it.work.places] == [
        ("modal", 1),
        ("local", 2),
    ]


# -- sandboxes that end before their work ----------------------------------------------------------

DAY_S = 86_400
DAYTONA = {"provider": "daytona"}


def training(place: dict[str, Any], *, timeout_s: int | None = None, **fields: Any) -> Manifest:
    template: dict[str, Any] = {"script": "true", "resources": {"gpu": "H100:1"}}
    if timeout_s is not None:
        template["timeoutSeconds"] = timeout_s
    return manifest("TrainingRun", "long", {"template": template, "placement": place, **fields})


@pytest.mark.parametrize(
    ("desired", "warns"),
    [
        (
            training(MODAL, timeout_s=3 * DAY_S),
            "modal ends each sandbox after 24 h, before timeout",
        ),
        (training(MODAL), "modal ends each sandbox after 24 h: without a checkpoint"),
        (training(MODAL, timeout_s=3600), ""),
        (training(MODAL, checkpoint={"path": "/ckpt"}), ""),
        (training(MODAL, checkpoint={"path": "/ckpt", "resume": "None"}), "without a checkpoint"),
        (training(DAYTONA, timeout_s=3 * DAY_S), ""),
        (training(DAYTONA), "daytona ends each sandbox after 24 h: without a checkpoint"),
        (training({"provider": "local"}, timeout_s=3 * DAY_S), ""),
        (job(4, timeout_s=3 * DAY_S), "modal ends each sandbox after 24 h, before timeoutSeconds"),
        (job(4), ""),
    ],
)
def test_work_that_begins_anew_when_its_sandbox_ends_is_warned_of(
    home: Path, desired: Manifest, warns: str
) -> None:
    [found] = planned(home, desired).objects
    message = "; ".join(found.notes)
    assert warns in message if warns else not message


def test_a_limit_that_a_sandbox_does_not_live_to_see_bounds_no_cost(home: Path) -> None:
    [bounded] = planned(home, training(DAYTONA, timeout_s=3 * DAY_S)).objects
    assert bounded.work is not None and bounded.work.now.high is not None
    [endless] = planned(home, training(MODAL, timeout_s=3 * DAY_S)).objects
    assert endless.work is not None and endless.work.lasts is not None
    assert (endless.work.now.high, endless.work.whole_s) == (None, None)
    assert endless.work.lasts.basis.endswith("; modal ends each sandbox after 24 h")


def test_at_most_holds_wherever_the_placement_lets_it_run(home: Path) -> None:
    both = {"ordered": [{"provider": "daytona"}, {"provider": "local"}]}
    dear = manifest("Provider", "local", {"prices": {"perHour": 100}})
    cheap = job(4, timeout_s=36, placement={"provider": "daytona"})
    over = job(4, timeout_s=36, placement=both, parallelism=2)
    alone, report = planned(home, dear, cheap), planned(home, dear, over)
    assert alone.cost.high is not None and alone.cost.high < 0.1
    # Daytona may be full, and then all of it runs here: 4 tasks of 36 s, 10 s of grace
    # and a second that a bill is rounded up to, at $100 an hour.
    assert report.cost.high == pytest.approx(4 * (36 + 11) * 100 / 3600)
    assert report.cost.at_most
    [work] = [it.work for it in report.objects if it.work is not None]
    assert work.rate_usd_per_s == pytest.approx(2 * 100 / 3600)


def test_a_search_whose_points_nobody_knows_yet_has_its_whole_price(home: Path) -> None:
    search: dict[str, Any] = {
        "method": "bayes",
        "metric": {"name": "loss"},
        "parameters": {"x": {"min": 0.0, "max": 1.0}},
        "run_cap": 6,
    }
    spec = {"template": {"python": "pass", "timeoutSeconds": 600}, "placement": MODAL}
    alone = manifest("Sweep", "alone", {**spec, "search": search})
    warmed = {**search, "priorTrials": {"fromSweep": "alone"}}
    waiting = manifest("Sweep", "waiting", {**spec, "search": warmed})
    known, awaited = planned(home, alone, waiting).objects
    assert known.work is not None and awaited.work is not None
    assert known.work.now.high is not None and known.work.now.high > 0
    assert awaited.work.now == known.work.now
    assert [it.units for it in awaited.work.places] == [6]


def test_case_16_stages_are_priced_apart(home: Path) -> None:
    template = {"script": "true", "resources": {"gpu": "H100:8"}, "timeoutSeconds": 3600}
    desired = manifest(
        "TrainingRun",
        "long",
        {
            "template": template,
            "placement": MODAL,
            "stages": [{"name": "data", "resources": {"cpu": 1}}, {"name": "train"}],
        },
    )
    [found] = planned(home, desired).objects
    assert found.work is not None
    data, train = found.work.places
    assert (data.name, data.gpu, train.name, train.gpu) == ("data", "", "train", "H100:8")
    assert data.judged.usd_per_s is not None and train.judged.usd_per_s is not None
    assert train.judged.usd_per_s > 100 * data.judged.usd_per_s
    assert found.work.rate_usd_per_s == train.judged.usd_per_s
    highs = [place.cost.high for place in (data, train)]
    assert found.work.now.high == sum(it for it in highs if it is not None)
