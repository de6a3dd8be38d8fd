"""What an apply changes, what it would destroy, and what it prunes; decided before it is stored."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fleetctl.apply.change import CONFIGURED, PRUNED, Change
from fleetctl.apply.consent import NeedsConsent, check_consent
from fleetctl.apply.propose import propose_changes
from fleetctl.apply.request import ApplyOptions, check_expected, order_of, version_of
from fleetctl.apply.write.store_changes import store_changes
from fleetctl.common.errors import Conflict, Refused, StoreError, UsageError
from fleetctl.controllers.model import Resource, Run, RunState
from fleetctl.manifest import Manifest
from fleetctl.specs.blocks.common import PlacementSpec
from fleetctl.specs.content import template_hash
from fleetctl.specs.kinds.batchjob import BatchJobSpec
from fleetctl.specs.values.hashing import params_hash
from fleetctl.stores.sqlite.store import SqliteStore, open_memory_store
from fleetctl.tracking.annotations import APPLYSET
from tests.unit.engine.fake_world import ManualClock, tasks
from tests.unit.engine.test_engine_desired import job, manifest

NOW_S = 1_000.0


@pytest.fixture
def store() -> SqliteStore:
    return open_memory_store(ManualClock())


def apply(store: SqliteStore, *manifests: Manifest, **order: Any) -> list[Change]:
    changes = propose_changes(store, manifests, order_of(order), NOW_S)
    store_changes(store, changes, NOW_S)
    return changes


def living(store: SqliteStore) -> dict[str, Resource]:
    return {row.key: row for row in store.resources.list() if row.deleted_at_s is None}


def run_task(store: SqliteStore, key: str, index: int, state: RunState, **more: Any) -> Run:
    """An attempt under the spec that is stored now; the task has no parameters."""
    row = living(store)[key]
    spec = BatchJobSpec.model_validate_json(row.spec)
    begun = Run(
        f"{key}-{index}", row.uid, index, 1, RunState.STARTING, "local", f"{key}-{index}",
        template_hash(spec.template, PlacementSpec()), "{}", params_hash({}), NOW_S - 100,
    )  # fmt: skip
    done = replace(begun, state=state, started_at_s=NOW_S - 90, **more)
    with store.transaction():
        store.runs.begin([begun])
        store.runs.advance(done)
    return done


def changed_template(count: int = 4, **fields: Any) -> Manifest:
    return job(count=count, template={"python": "SUBMIT(other=True)  # " + "x" * 40}, **fields)


def test_what_is_done_is_kept_and_what_runs_with_another_template_is_replaced(
    store: SqliteStore,
) -> None:
    apply(store, job(count=4))
    run_task(store, "batchjob/job", 0, RunState.SUCCEEDED, ended_at_s=NOW_S - 1)
    run_task(store, "batchjob/job", 1, RunState.RUNNING, usd_per_s=0.01)
    [change] = propose_changes(store, [changed_template()], ApplyOptions(), NOW_S)
    assert change.outcome == CONFIGURED
    assert change.message == "template.python; 1 kept, 2 to run, 1 replaced"
    assert change.impact is not None
    assert [run.index for run in change.impact.replaced] == [1]


def test_replacing_running_work_needs_consent_and_says_what_it_cost(store: SqliteStore) -> None:
    apply(store, job(count=4))
    run_task(store, "batchjob/job", 1, RunState.RUNNING, usd_per_s=0.02)
    changes = propose_changes(store, [changed_template()], ApplyOptions(), NOW_S)
    with pytest.raises(NeedsConsent) as refused:
        check_consent(changes, (), NOW_S)
    assert str(refused.value) == (
        "batchjob/job: template.python changed: 1 running task would be replaced "
        "(90 s of work, about $1.80 already spent on it)"
    )
    assert refused.value.hint == (
        "add --yes to do it all the same, or --rollout=FinishRunning to let running work end first"
    )
    check_consent(changes, {"batchjob/job-1"}, NOW_S)  # seen before, in a saved plan


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (job(count=1), "completions changed: 1 running task would be stopped (90 s of work)"),
        (job(count=2, parallelism=0), "parallelism changed: 1 running task would be replaced"),
    ],
)
def test_a_smaller_wish_needs_consent_for_what_it_stops(
    store: SqliteStore, after: Manifest, said: str
) -> None:
    apply(store, job(count=2))
    run_task(store, "batchjob/job", 1, RunState.RUNNING)
    with pytest.raises(NeedsConsent, match=said.partition(" (")[0]):
        check_consent(propose_changes(store, [after], ApplyOptions(), NOW_S), (), NOW_S)


def test_letting_running_work_end_needs_no_consent(store: SqliteStore) -> None:
    apply(store, job(count=4))
    run_task(store, "batchjob/job", 1, RunState.RUNNING)
    order = order_of({"rollout": "FinishRunning"})
    changes = propose_changes(store, [changed_template()], order, NOW_S)
    check_consent(changes, (), NOW_S)
    assert changes[0].impact is not None
    assert [run.index for run in changes[0].impact.going_on] == [1]


def test_a_start_that_waits_is_no_work_that_is_lost(store: SqliteStore) -> None:
    apply(store, job(count=4))
    run_task(store, "batchjob/job", 1, RunState.STARTING)
    check_consent(propose_changes(store, [changed_template()], ApplyOptions(), NOW_S), (), NOW_S)


def test_more_tasks_and_more_parallelism_need_no_consent(store: SqliteStore) -> None:
    apply(store, job(count=2, parallelism=1))
    run_task(store, "batchjob/job", 0, RunState.RUNNING)
    changes = propose_changes(store, [job(count=9, parallelism=4)], ApplyOptions(), NOW_S)
    check_consent(changes, (), NOW_S)
    assert changes[0].message == ("parallelism 1 -> 4, completions 2 -> 9; 1 running on, 8 to run")


# -- apply sets ------------------------------------------------------------------------------------


def test_only_what_the_set_applied_and_the_files_lost_is_pruned(store: SqliteStore) -> None:
    apply(store, job("alone"))
    apply(store, job("a"), job("b"), applyset="nightly")
    apply(store, job("c"), applyset="other")
    *_, gone = apply(store, job("a"), applyset="nightly", prune=True)
    assert (gone.key, gone.outcome) == ("batchjob/b", PRUNED)
    assert sorted(living(store)) == ["batchjob/a", "batchjob/alone", "batchjob/c"]


def test_the_first_prune_adopts_only_what_it_applies(store: SqliteStore) -> None:
    apply(store, job("a"), job("b"))
    apply(store, job("a"), applyset="nightly", prune=True)
    assert living(store)["batchjob/a"].labels == {APPLYSET: "nightly"}
    assert living(store)["batchjob/b"].labels == {}


def test_an_apply_without_a_set_leaves_the_membership(store: SqliteStore) -> None:
    apply(store, job("a"), applyset="nightly")
    [change] = apply(store, job("a"))
    assert change.outcome == "unchanged"
    assert living(store)["batchjob/a"].labels == {APPLYSET: "nightly"}


def test_an_object_of_another_set_is_a_conflict_until_it_is_taken_over(store: SqliteStore) -> None:
    apply(store, job("a"), applyset="nightly")
    with pytest.raises(Conflict, match="belongs to the apply set `nightly`"):
        apply(store, job("a"), applyset="daily")
    apply(store, job("a"), applyset="daily", takeOver=True)
    assert living(store)["batchjob/a"].labels == {APPLYSET: "daily"}


def test_the_guard_refuses_when_more_than_half_would_go(store: SqliteStore) -> None:
    apply(store, job("a"), job("b"), job("c"), applyset="nightly")
    with pytest.raises(Refused, match="2 of the 3 objects") as refused:
        apply(store, job("a"), applyset="nightly", prune=True)
    assert "--max-prune 2" in refused.value.hint
    assert len(living(store)) == 3
    apply(store, job("a"), applyset="nightly", prune=True, maxPrune="67%")
    assert list(living(store)) == ["batchjob/a"]


def test_one_of_two_may_go_without_a_word_and_no_more_than_the_limit(store: SqliteStore) -> None:
    apply(store, job("a"), job("b"), applyset="nightly")
    with pytest.raises(Refused):
        apply(store, job("a"), applyset="nightly", prune=True, maxPrune="0")
    apply(store, job("a"), applyset="nightly", prune=True)
    assert list(living(store)) == ["batchjob/a"]


def test_pruning_running_work_or_data_needs_consent(store: SqliteStore) -> None:
    data = manifest("Volume", "data", {"deletionPolicy": "Delete"})
    keep = manifest("Volume", "keep", {})
    apply(store, job("a"), job("b", count=1), data, keep, applyset="nightly")
    run_task(store, "batchjob/b", 0, RunState.RUNNING)
    order = order_of({"applyset": "nightly", "prune": True, "maxPrune": "3"})
    with pytest.raises(NeedsConsent) as refused:
        check_consent(propose_changes(store, [job("a")], order, NOW_S), (), NOW_S)
    assert refused.value.losses == (
        "volume/data: pruning it deletes its data (deletionPolicy is Delete)",
        "batchjob/b: 1 running task would be stopped (90 s of work)",
    )


@pytest.mark.parametrize("limit", ["most", "-1", "101%", "1.5", "%"])
def test_a_limit_that_is_none_is_told(limit: str) -> None:
    with pytest.raises(UsageError, match="--max-prune"):
        order_of({"applyset": "a", "prune": True, "maxPrune": limit})


# -- saved plans -----------------------------------------------------------------------------------


def planned(store: SqliteStore, *manifests: Manifest) -> dict[str, object]:
    changes = propose_changes(store, manifests, ApplyOptions(), NOW_S)
    objects = {change.key: version_of(change) for change in changes}
    return {"expected": {"store": store.store_id, "objects": objects}}


def test_a_plan_holds_while_the_world_stands_still(store: SqliteStore) -> None:
    apply(store, job("a"))
    saved = planned(store, job("a", count=5), job("new"))
    check_expected(
        saved, store, propose_changes(store, [job("a", count=5), job("new")], ApplyOptions(), NOW_S)
    )


def test_a_plan_is_refused_when_an_object_has_moved(store: SqliteStore) -> None:
    apply(store, job("a"))
    saved = planned(store, job("a", count=5), job("new"))
    apply(store, job("a", count=3))
    with pytest.raises(Conflict, match="batchjob/a changed since"):
        check_expected(
            saved,
            store,
            propose_changes(store, [job("a", count=5), job("new")], ApplyOptions(), NOW_S),
        )


def test_a_plan_is_refused_for_another_store_or_other_objects(store: SqliteStore) -> None:
    saved = planned(store, job("a"))
    other = open_memory_store(ManualClock())
    with pytest.raises(Conflict, match="another store"):
        check_expected(saved, other, propose_changes(other, [job("a")], ApplyOptions(), NOW_S))
    with pytest.raises(Conflict, match="batchjob/b would be created"):
        check_expected(
            saved, store, propose_changes(store, [job("a"), job("b")], ApplyOptions(), NOW_S)
        )


def test_a_number_and_a_truth_are_two_values(store: SqliteStore) -> None:
    def with_x(value: object) -> Manifest:
        spec = {"tasks": {"items": [{"x": value}]}, "template": {"python": "pass"}}
        return manifest("BatchJob", "job", spec)

    apply(store, with_x(1))
    [change] = apply(store, with_x(True))
    assert (change.outcome, change.message) == (
        "configured",
        "tasks.items[0].x 1 -> true; 1 to run",
    )


def test_proposing_writes_nothing(store: SqliteStore) -> None:
    propose_changes(store, [job(), manifest("BatchJob", "b", tasks(1))], ApplyOptions(), NOW_S)
    assert list(store.resources.list()) == []


def test_pruning_says_what_it_stops_and_nothing_of_what_is_done(store: SqliteStore) -> None:
    apply(store, job("a"), job("b"), job("c"), applyset="nightly")
    run_task(store, "batchjob/b", 0, RunState.RUNNING)
    run_task(store, "batchjob/c", 0, RunState.SUCCEEDED)
    order = {"applyset": "nightly", "prune": True, "maxPrune": "2", "yes": True}
    _, *gone = apply(store, job("a"), **order)
    assert {it.key: it.message for it in gone} == {"batchjob/b": "1 stopped", "batchjob/c": ""}


def test_many_manifests_are_stored_in_one_commit() -> None:
    """A crash or a full disk between two of them would leave half of what was asked for."""
    commits: list[int] = []

    def only_one() -> None:
        commits.append(len(commits))
        if len(commits) > 1:
            raise StoreError("the disk is full")

    store = open_memory_store(ManualClock(), before_commit=only_one)
    commits.clear()  # of its making
    apply(store, job("a"), job("b"), job("c"))
    assert living(store).keys() == {"batchjob/a", "batchjob/b", "batchjob/c"}
