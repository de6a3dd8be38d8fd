"""What every store does, run over each. A new store adds a line to `store_worlds.WORLDS`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from math import inf, nan
from pathlib import Path

import pytest
from store_worlds import WORLDS, FixedClock, World, begin, job, put, run

from fleetctl.common import state_paths as places
from fleetctl.common.errors import Conflict, NotFound, StoreError
from fleetctl.controllers.model import Metric, RunState
from fleetctl.stores.base import CachedSuccess, CallSums, EndpointUsage, EventRow, ReuseScope
from fleetctl.stores.sqlite.runs import SqliteCache
from fleetctl.stores.sqlite.store import SqliteStore, open_memory_store, open_store


@pytest.fixture(params=sorted(WORLDS))
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    yield from WORLDS[request.param](tmp_path)


@pytest.fixture
def store(world: World) -> SqliteStore:
    return world.store


# Resources


def test_a_created_resource_reads_back_equal_with_version_one(store: SqliteStore) -> None:
    created = put(store, job())
    assert created == job(version=1)
    assert store.resources.get("BatchJob", "chunks") == created
    assert list(store.resources.list()) == [created]


def test_a_living_name_is_taken_and_the_first_stays_as_it_was(store: SqliteStore) -> None:
    put(store, job())
    with pytest.raises(Conflict, match="batchjob/chunks exists already"):
        put(store, job(uid="u2", spec='{"other":1}'))
    assert [found.uid for found in store.resources.list()] == ["u1"]


def test_the_same_name_of_another_kind_is_free(store: SqliteStore) -> None:
    put(store, job())
    put(store, job(uid="u2", kind="Sweep"))
    assert [found.kind for found in store.resources.list()] == ["BatchJob", "Sweep"]


def test_the_same_name_in_another_namespace_is_free(store: SqliteStore) -> None:
    ours = put(store, job())
    theirs = put(store, job(uid="u2", namespace="team"))
    assert store.resources.get("BatchJob", "chunks") == ours
    assert store.resources.get("BatchJob", "chunks", "team") == theirs
    assert store.resources.get("BatchJob", "chunks", "nobody") is None
    with pytest.raises(Conflict, match="batchjob/chunks -n team exists already"):
        put(store, job(uid="u3", namespace="team"))
    with store.transaction():
        store.resources.delete("u2")
    assert list(store.resources.list()) == [ours]


def test_creates_are_kept_by_provider_as_long_as_they_matter(store: SqliteStore) -> None:
    for provider, at_s in (("modal", 10.0), ("daytona", 15.0), ("modal", 20.0), ("modal", 75.0)):
        with store.transaction():
            store.creates.add(provider, at_s, forget_until_s=at_s - 60.0)
    assert store.creates.times("modal") == [20.0, 75.0]
    assert store.creates.times("daytona") == [15.0]
    assert store.creates.times("local") == []


def test_what_was_asked_of_an_endpoint_adds_up_once(store: SqliteStore) -> None:
    put(store, job())
    begin(store, run())

    def hear(calls: int, usd: float, name: str = run().name) -> list[float]:
        total = CallSums(calls=calls, tries=calls, tokens_in=10 * calls, usd=usd)
        with store.transaction():
            return store.calls.record(
                [EndpointUsage(name, "small", "e1", total, (1.0, 2.0, 3.0, 4.0))]
            )

    assert hear(3, 0.5) == [0.5]
    assert hear(3, 0.5) == [0.0]  # heard twice
    assert hear(5, 0.75) == [0.25]
    assert hear(9, 9.0, "nobody's") == [0.0]
    assert store.runs.calls_usd_of("u1") == 0.75
    assert store.calls.sum_of("e1") == CallSums(calls=5, tries=5, tokens_in=50, usd=0.75)
    assert store.calls.sum_of("e2") == CallSums()
    with store.transaction():
        store.resources.delete("u1")
    assert store.calls.sum_of("e1").calls == 5  # the sums outlive the runs
    with store.transaction():
        store.calls.forget("e1")
    assert store.calls.sum_of("e1") == CallSums()


def test_a_replacement_keeps_the_status_and_raises_the_version(store: SqliteStore) -> None:
    put(store, job())
    with store.transaction():
        assert store.resources.put_status("u1", '{"phase":"Running"}', expected_version=1) == 2
        desired = job(spec='{"a":2}', generation=2, status="ignored", labels={}, annotations={})
        replaced = store.resources.put(desired, expected_version=2)
    assert replaced == replace(desired, version=3, status='{"phase":"Running"}')
    assert store.resources.get("BatchJob", "chunks") == replaced


def test_a_replacement_of_an_older_version_is_a_conflict_and_changes_nothing(
    store: SqliteStore,
) -> None:
    first = put(store, job())
    with pytest.raises(Conflict, match="changed after you read it"), store.transaction():
        store.resources.put(job(spec="{}"), expected_version=7)
    assert store.resources.get("BatchJob", "chunks") == first


def test_a_replacement_may_have_another_name_that_is_free(store: SqliteStore) -> None:
    first = put(store, job(uid="u1"))
    with store.transaction():
        again = store.resources.put(replace(first, name="new"), expected_version=first.version)
    assert store.resources.get("BatchJob", "new") == again
    assert store.resources.get("BatchJob", first.name) is None
    put(store, job(uid="u2"))
    with pytest.raises(Conflict, match="exists already"), store.transaction():
        store.resources.put(replace(again, name=first.name), expected_version=again.version)


def test_a_replacement_of_a_dropped_resource_is_a_conflict(store: SqliteStore) -> None:
    with pytest.raises(Conflict), store.transaction():
        store.resources.put(job(), expected_version=1)
    assert list(store.resources.list()) == []


def test_a_status_for_an_older_version_is_not_written(store: SqliteStore) -> None:
    first = put(store, job())
    with store.transaction():
        assert store.resources.put_status("u1", '{"x":1}', expected_version=9) is None
        assert store.resources.put_status("gone", '{"x":1}', expected_version=1) is None
    assert store.resources.get("BatchJob", "chunks") == first


def test_a_resource_is_awake_until_it_is_put_to_sleep_and_every_write_wakes_it(
    world: World,
) -> None:
    store = world.store
    for name in ("u1", "u2", "u3"):
        put(store, job(uid=name, name=name))
    assert (list(store.sleep.awake(0.0)), store.sleep.next_at_s(0.0)) == (["u1", "u2", "u3"], None)
    with store.transaction():
        assert store.sleep.put("u1", until_s=None, expected_version=1)
        assert store.sleep.put("u2", until_s=50.0, expected_version=1)
        assert not store.sleep.put("u3", until_s=None, expected_version=9)
        assert not store.sleep.put("gone", until_s=None, expected_version=1)
    store = world.crash()
    assert [row.version for row in store.resources.list()] == [1, 1, 1]
    assert (list(store.sleep.awake(49.0)), store.sleep.next_at_s(49.0)) == (["u3"], 50.0)
    assert (list(store.sleep.awake(50.0)), store.sleep.next_at_s(50.0)) == (["u2", "u3"], None)
    with store.transaction():
        store.resources.put(job(uid="u1", name="u1", labels={}), expected_version=1)
        store.resources.put_status("u2", '{"x":1}', expected_version=1)
    assert list(store.sleep.awake(0.0)) == ["u1", "u2", "u3"]


def test_annotations_are_told_once_each_and_none_of_who_has_none(store: SqliteStore) -> None:
    for uid, notes in (("u1", {"a": "1"}), ("u2", {}), ("u3", {"a": "1"}), ("u4", {"b": "2"})):
        put(store, job(uid=uid, name=uid, annotations=notes))
    assert sorted(map(str, store.resources.annotations())) == ["{'a': '1'}", "{'b': '2'}"]


def test_one_resource_is_found_by_its_uid_until_it_is_dropped(store: SqliteStore) -> None:
    first = put(store, job())
    assert store.resources.of("u1") == first
    with store.transaction():
        gone = store.resources.put(replace(first, deleted_at_s=9.0), expected_version=1)
    assert store.resources.of("u1") == gone
    with store.transaction():
        store.resources.delete("u1")
    assert store.resources.of("u1") is None


def test_a_name_is_free_while_its_last_holder_is_being_deleted(store: SqliteStore) -> None:
    first = put(store, job())
    with store.transaction():
        store.resources.put(replace(first, deleted_at_s=9.0), expected_version=1)
    assert store.resources.get("BatchJob", "chunks") is None
    put(store, job(uid="u2"))
    found = store.resources.get("BatchJob", "chunks")
    assert found is not None and found.uid == "u2"
    assert [r.uid for r in store.resources.list()] == ["u1", "u2"]


def test_the_wish_to_delete_is_never_unset(store: SqliteStore) -> None:
    put(store, job())
    with store.transaction():
        store.resources.put(job(deleted_at_s=9.0), expected_version=1)
        store.resources.put(job(deleted_at_s=None), expected_version=2)
        store.resources.put(job(deleted_at_s=11.0), expected_version=3)
    assert [r.deleted_at_s for r in store.resources.list()] == [9.0]


def test_delete_drops_all_that_hangs_on_the_resource_and_nothing_else(store: SqliteStore) -> None:
    for uid in ("u1", "u2"):
        put(store, job(uid=uid, name=uid))
        begin(store, run(uid=uid))
        with store.transaction():
            store.runs.advance(run(uid=uid), result="{}", metrics=[Metric(0, 0, "loss", 1.0, 7.0)])
    with store.transaction():
        store.resources.delete("u1")
        store.resources.delete("u1")
        store.resources.delete("never was")
    assert [r.uid for r in store.resources.list()] == ["u2"]
    assert list(store.runs.of("u1")) == []
    assert list(store.runs.metrics_of("fl-u1-0-1")) == []
    assert [result for _, result in store.runs.of("u2")] == ["{}"]
    assert len(store.runs.metrics_of("fl-u2-0-1")) == 1


def test_the_last_finite_value_of_each_metric_counts(store: SqliteStore) -> None:
    put(store, job())
    begin(store, run(0))
    reports = [Metric(0, 0, "loss", 3.0, 7.0), Metric(1, 0, "reward", -1.5, 7.0)]
    reports += [Metric(2, 1, "loss", 2.0, 7.0), Metric(3, 2, "loss", nan, 7.0)]
    reports += [Metric(4, 3, "loss", inf, 7.0), Metric(5, 3, "never", nan, 7.0)]
    reports += [Metric(-9, 3, "system/cpu.percent", 50.0, 7.0)]
    with store.transaction():
        store.runs.advance(run(0), metrics=reports)
    assert store.runs.last_values_of(run(0).name) == {"loss": 2.0, "reward": -1.5}


def test_metrics_are_read_in_pages(store: SqliteStore) -> None:
    put(store, job())
    begin(store, run(0))
    with store.transaction():
        reports = [Metric(seq, seq, "loss", 1.0, 7.0) for seq in range(5)]
        store.runs.advance(run(0), metrics=reports)
    name = run(0).name
    assert [it.seq for it in store.runs.metrics_of(name, limit=2)] == [0, 1]
    assert [it.seq for it in store.runs.metrics_of(name, after=1, limit=2)] == [2, 3]
    assert [it.seq for it in store.runs.metrics_of(name, after=3)] == [4]
    assert store.runs.metrics_of(name, after=4, limit=2) == []


def test_metrics_are_thinned_to_what_each_came_to_last(world: World) -> None:
    store = world.store
    put(store, job(uid="u1", name="u1"))
    put(store, job(uid="u2", name="u2"))
    for uid in ("u1", "u2"):
        begin(store, run(uid=uid))
        told = [Metric(at, at, "loss", 9.0 - at, 7.0) for at in range(5)]
        told += [Metric(5, 5, "loss", nan, 7.0), Metric(6, 0, "once", 1.0, 7.0)]
        with store.transaction():
            store.runs.advance(run(uid=uid), metrics=told)
    with store.transaction():
        assert not store.runs.thin("u1")
    left = store.runs.metrics_of("fl-u1-0-1")
    assert [(it.name, it.step) for it in left] == [("loss", 4), ("loss", 5), ("once", 0)]
    assert len(store.runs.metrics_of("fl-u2-0-1")) == 7


def test_events_are_replaced_by_one_that_says_so(world: World) -> None:
    store = world.store
    with store.transaction():
        for uid in ("u1", "u2"):
            rows = [EventRow(uid, 1.0, "Normal", "Said", f"no {number}") for number in range(3)]
            store.events.record(rows)
    with store.transaction():
        store.events.replace(EventRow("u1", 2.0, "Normal", "PastRetention", "gone"))
    query = "SELECT uid, reason FROM events ORDER BY uid, seq"
    found = store._session._events.execute(query).fetchall()
    assert found == [("u1", "PastRetention"), *[("u2", "Said")] * 3]


def test_room_that_was_freed_goes_back_to_the_disk(tmp_path: Path) -> None:
    store = open_store(tmp_path, FixedClock())
    many = "x" * 200_000
    for number in range(60):  # 12 MB
        put(store, job(uid=f"u{number}", name=f"u{number}", spec=json.dumps({"filler": many})))
    with store.transaction():
        for number in range(60):
            store.resources.delete(f"u{number}")
    more, steps = True, 0
    while more:
        with store.transaction():
            more = store.shrink()
        steps += 1
    store.close()
    assert steps > 1 and (tmp_path / places.STATE_DB).stat().st_size < 9_000_000


def kept(world: World) -> dict[str, int]:
    """How many rows each table has that outlives an object."""
    state = world.store._session.state
    return {
        table: state.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        for table in ("gone", "runs", "results", "metrics")
    }


def test_retention_takes_what_is_old_and_the_oldest_of_too_much(world: World) -> None:
    store = world.store
    for uid in ("u1", "u2", "u3"):
        put(store, job(uid=uid, name=uid))
        begin(store, run(uid=uid))
        with store.transaction():
            store.runs.advance(run(uid=uid), result="{}", metrics=[Metric(0, 0, "loss", 1.0, 7.0)])
    with store.transaction():
        store.resources.delete("u1")
        store.resources.delete("u2")
    assert kept(world) == {"gone": 2, "runs": 3, "results": 3, "metrics": 3}

    def forget(until_s: float, bytes_max: int, objects_max: int) -> None:
        more = True
        while more:
            with store.transaction():
                more = store.gone.forget(
                    until_s=until_s, bytes_max=bytes_max, objects_max=objects_max
                )

    forget(999.0, 10_000, 2)
    assert kept(world)["gone"] == 2
    forget(999.0, 10_000, 1)
    assert kept(world) == {"gone": 1, "runs": 2, "results": 2, "metrics": 2}
    forget(999.0, 10, 1)
    assert kept(world) == {"gone": 0, "runs": 1, "results": 1, "metrics": 1}
    with store.transaction():
        store.resources.delete("u3")
    forget(1_000.0, 10_000, 9)
    assert kept(world) == {"gone": 0, "runs": 0, "results": 0, "metrics": 0}


def test_nothing_of_a_dropped_resource_comes_back_with_the_next_one(store: SqliteStore) -> None:
    put(store, job())
    begin(store, run(0))
    with store.transaction():
        store.runs.advance(run(0), result="{}", metrics=[Metric(0, 0, "loss", 1.0, 7.0)])
        store.resources.delete("u1")
        store.resources.put(job(), expected_version=None)
        store.runs.begin([run(0)])
    assert list(store.runs.of("u1")) == [(run(0), None)]
    assert list(store.runs.metrics_of(run(0).name)) == []


def test_watch_gives_the_wishes_after_a_point_and_the_counter_survives_a_restart(
    world: World,
) -> None:
    store = world.store
    start, _ = store.resources.watch(0)
    put(store, job())
    put(store, job(uid="u2", name="b"))
    middle, changed = store.resources.watch(start)
    assert [row.uid for row in changed] == ["u1", "u2"]
    with store.transaction():
        store.resources.put_status("u1", '{"x":1}', expected_version=1)
    assert store.resources.watch(middle) == (middle, [])
    with store.transaction():
        again = store.resources.put(job(spec='{"again":1}'), expected_version=2)
    assert list(store.resources.watch(middle)[1]) == [again]
    with store.transaction():
        store.resources.delete("u1")
    end, changed = store.resources.watch(middle)
    assert end > middle and list(changed) == []
    store = world.crash()
    assert store.resources.watch(middle) == (end, [])


def test_a_spec_of_ten_megabytes_reads_back_equal(store: SqliteStore) -> None:
    put(store, job(spec="x" * 10_000_000))
    found = store.resources.get("BatchJob", "chunks")
    assert found is not None and found.spec == "x" * 10_000_000


# Runs


def test_runs_read_back_equal_in_the_order_of_index_and_attempt(store: SqliteStore) -> None:
    put(store, job())
    full = run(
        2, 1, state=RunState.LOST, provider="modal", sandbox="fl-u1-0-1", handle="sb-1",
        started_at_s=7.5, ended_at_s=8.25, exit_code=-9, reason="ProviderLost", message="gone",
        journal_offset=2**40, sandbox_open=True,
    )  # fmt: skip
    begin(store, full, run(0, 2), run(0, 1))
    assert [r for r, _ in store.runs.of("u1")] == [run(0, 1), run(0, 2), full]
    assert list(store.runs.of("nobody")) == []


def test_an_attempt_is_never_begun_twice_and_the_batch_of_the_second_is_refused_whole(
    store: SqliteStore,
) -> None:
    put(store, job())
    begin(store, run(0))
    with store.transaction():
        with pytest.raises(Conflict, match="fl-u1-0-1"):
            store.runs.begin([run(1), run(0)])
        with pytest.raises(Conflict):
            store.runs.begin([run(0, name="another name")])
    assert [r.index for r, _ in store.runs.of("u1")] == [0]


def test_a_run_of_a_dropped_resource_cannot_begin(store: SqliteStore) -> None:
    put(store, job())
    begin(store, run(0))
    with store.transaction():
        store.resources.delete("u1")
    with pytest.raises(NotFound):
        begin(store, run(1))
    assert list(store.runs.of("u1")) == []


@pytest.mark.parametrize("stored", list(RunState))
@pytest.mark.parametrize("allowed", list(RunState))
def test_advance_writes_only_from_the_states_that_it_names(
    store: SqliteStore, stored: RunState, allowed: RunState
) -> None:
    put(store, job())
    begin(store, run(0, state=stored))
    desired = run(0, state=RunState.STOPPED, reason="x")
    metrics = [Metric(0, 0, "loss", 1.0, 7.0)]
    with store.transaction():
        done = store.runs.advance(
            desired, from_states=frozenset({allowed}), result="{}", metrics=metrics
        )
    assert done == (stored == allowed)
    expected = (desired, "{}") if done else (run(0, state=stored), None)
    assert list(store.runs.of("u1")) == [expected]
    assert list(store.runs.metrics_of(desired.name)) == (metrics if done else [])


def test_advance_of_an_unknown_run_writes_nothing(store: SqliteStore) -> None:
    put(store, job())
    with store.transaction():
        assert store.runs.advance(run(3), result="{}") is False
    assert list(store.runs.of("u1")) == []


def test_metrics_that_arrive_twice_are_kept_once(store: SqliteStore) -> None:
    put(store, job())
    begin(store, run(0))
    first, second = Metric(0, 1, "loss", 0.5, 7.0), Metric(1, 2, "loss", float("inf"), 8.0)
    with store.transaction():
        store.runs.advance(run(0), metrics=[first])
    with store.transaction():
        store.runs.advance(run(0), metrics=[replace(first, value=99.0), second])
    assert list(store.runs.metrics_of(run(0).name)) == [first, second]
    assert store.runs.last_step(run(0).name) == max(first.step, second.step)
    assert store.runs.last_step("nobody") is None


def test_samples_of_a_machine_are_no_metrics(store: SqliteStore) -> None:
    put(store, job())
    begin(store, run(0))
    sample = Metric(-5, 1_700_000_000, "system/cpu.percent", 99.0, 1_700_000_000.0)
    reported = Metric(0, 4, "loss", 0.5, 1.0)
    with store.transaction():
        store.runs.advance(run(0), metrics=[sample, reported])
    assert list(store.runs.metrics_of(run(0).name)) == [reported]
    assert store.runs.last_step(run(0).name) == 4


def test_a_metric_that_is_not_a_number_stays_one(store: SqliteStore) -> None:
    put(store, job())
    begin(store, run(0))
    with store.transaction():
        store.runs.advance(run(0), metrics=[Metric(0, 1, "loss", float("nan"), 7.0)])
    [metric] = store.runs.metrics_of(run(0).name)
    assert metric.value != metric.value


def test_a_result_outlives_later_writes_of_its_run(store: SqliteStore) -> None:
    put(store, job())
    begin(store, run(0))
    ended = run(0, state=RunState.SUCCEEDED, sandbox_open=True)
    with store.transaction():
        store.runs.advance(ended, result='{"n":1}')
        store.runs.advance(
            replace(ended, sandbox_open=False), from_states=frozenset({RunState.SUCCEEDED})
        )
    assert list(store.runs.of("u1")) == [(replace(ended, sandbox_open=False), '{"n":1}')]


def test_runs_stream_in_pages_and_writes_may_go_on_between(store: SqliteStore) -> None:
    put(store, job())
    begin(store, *(run(i) for i in range(2500)))
    seen = []
    for r, _ in store.runs.of("u1"):
        if r.index % 1000 == 0:
            with store.transaction():
                store.runs.advance(replace(r, state=RunState.RUNNING))
        seen.append(r.index)
    assert seen == list(range(2500))


# Transactions


def test_a_run_cannot_begin_for_a_resource_whose_creation_was_undone(store: SqliteStore) -> None:
    with pytest.raises(ZeroDivisionError), store.transaction():
        store.resources.put(job(), expected_version=None)
        store.runs.begin([run(0)])
        raise ZeroDivisionError
    with pytest.raises(NotFound):
        begin(store, run(0))
    assert list(store.runs.of("u1")) == []


def test_a_block_that_raises_leaves_no_trace(store: SqliteStore) -> None:
    put(store, job())
    start = store.resources.watch(0)
    with pytest.raises(ZeroDivisionError), store.transaction():
        store.resources.put(job(uid="u2", name="b"), expected_version=None)
        store.resources.put_status("u1", '{"x":1}', expected_version=1)
        store.runs.begin([run(0, provider="new word")])
        raise ZeroDivisionError
    assert store.resources.watch(0) == start
    assert [r.version for r in store.resources.list()] == [1]
    # What the failed block had looked up must not be taken for stored.
    begin(store, run(0, provider="new word"))
    assert [r.provider for r, _ in store.runs.of("u1")] == ["new word"]


def test_a_crash_before_the_commit_loses_all_of_the_block(world: World) -> None:
    put(world.store, job())

    def crash() -> None:
        raise KeyboardInterrupt

    store = world.crash(before_commit=crash)
    with pytest.raises(KeyboardInterrupt):
        begin(store, run(0), run(1))
    store = world.crash()
    assert list(store.runs.of("u1")) == []
    assert [r.uid for r in store.resources.list()] == ["u1"]


def test_a_crash_after_the_commit_loses_nothing_of_the_block(world: World) -> None:
    put(world.store, job())

    def crash() -> None:
        raise KeyboardInterrupt

    store = world.crash(after_commit=crash)
    with pytest.raises(KeyboardInterrupt):
        begin(store, run(0), run(1))
    assert [r.index for r, _ in world.crash().runs.of("u1")] == [0, 1]


def test_an_older_writer_is_fenced_off(world: World) -> None:
    old = world.store
    put(old, job())
    new = world.crash()
    with pytest.raises(StoreError), old.transaction():
        old.runs.begin([run(0)])
    assert list(new.runs.of("u1")) == []
    assert new.epoch > old.epoch


def test_a_transaction_inside_a_transaction_is_refused_and_the_outer_one_undone(
    store: SqliteStore,
) -> None:
    with pytest.raises(StoreError, match="inside another"), store.transaction():
        store.resources.put(job(), expected_version=None)
        with store.transaction():
            pass
    assert list(store.resources.list()) == []
    put(store, job())


def test_what_is_tried_as_a_whole_leaves_nothing_where_it_fails_and_the_rest_stays(
    world: World,
) -> None:
    store = world.store
    other = replace(job(), uid="u2", name="other")
    with store.transaction():
        store.resources.put(job(), expected_version=None)
        with pytest.raises(Conflict), store.whole():
            store.resources.put(other, expected_version=None)
            store.events.record([EventRow("u2", 1.0, "Normal", "Created", "x")])
            store.resources.put(other, expected_version=None)
        with store.whole():
            store.events.record([EventRow("u1", 1.0, "Normal", "Created", "x")])
    kept = world.crash()
    assert [it.uid for it in kept.resources.list()] == ["u1"]
    put(kept, other)
    assert [it.uid for it in kept.resources.list()] == ["u1", "u2"]


def test_a_write_outside_of_a_transaction_is_an_error_of_ours(store: SqliteStore) -> None:
    with pytest.raises(AssertionError):
        store.resources.put(job(), expected_version=None)
    with pytest.raises(AssertionError):
        store.runs.begin([run(0)])
    with pytest.raises(AssertionError):
        store.events.record([EventRow("u1", 1.0, "Normal", "Started", "x")])
    assert list(store.resources.list()) == []


def test_a_store_keeps_its_id_over_restarts_and_no_two_stores_share_one(world: World) -> None:
    first = world.store.store_id
    assert world.crash().store_id == first
    assert open_memory_store(FixedClock()).store_id != first


# Successes by content


OWN = ReuseScope(("u1",))


def success(
    unit: str, *, result: str | None = '{"x":1}', owner: str = "u1", ended_at_s: float = 9.0
) -> CachedSuccess:
    run = f"run-{owner}-{unit}"
    return CachedSuccess("t", unit, result, "{}", run, "batchjob/a", 3, 2.5, 0.1, ended_at_s, owner)


def test_a_success_is_known_by_its_keys_after_a_crash_and_without_its_object(world: World) -> None:
    put(world.store, job())
    with world.store.transaction():
        world.store.cache.remember([success("a"), success("b", result=None)])
        world.store.resources.delete("u1")
    cache = world.crash().cache
    assert set(cache.recall("t", OWN)) == {"a", "b"}
    assert set(cache.recall("another", OWN)) == set()
    assert cache.get("t", "a", OWN) == success("a")
    assert cache.get("t", "b", OWN) == success("b", result=None)
    assert cache.get("t", "c", OWN) is None


def test_a_success_of_an_undone_transaction_is_not_known(store: SqliteStore) -> None:
    with pytest.raises(ZeroDivisionError), store.transaction():
        store.cache.remember([success("a")])
        raise ZeroDivisionError
    assert store.cache.get("t", "a", OWN) is None


def test_a_newer_success_takes_the_place_of_the_older_one(store: SqliteStore) -> None:
    with store.transaction():
        store.cache.remember([success("a"), success("a", result='{"x":2}')])
    assert store.cache.get("t", "a", OWN) == success("a", result='{"x":2}')


def test_each_object_has_its_own_success_of_a_content(store: SqliteStore) -> None:
    mine, other = success("a"), success("a", owner="u2", ended_at_s=10.0)
    with store.transaction():
        store.cache.remember([mine, other, success("b", owner="u2")])
    assert store.cache.get("t", "a", OWN) == mine
    assert set(store.cache.recall("t", OWN)) == {"a"}
    shared = ReuseScope(("u1",), shared=True)
    assert store.cache.get("t", "a", shared) == mine
    assert store.cache.get("t", "a", ReuseScope(("u3",), shared=True)) == other
    assert set(store.cache.recall("t", shared)) == {"a", "b"}
    with store.transaction():
        store.cache.forget("u1")
    assert store.cache.get("t", "a", OWN) is None
    assert store.cache.get("t", "a", shared) == other


def test_what_ended_before_a_moment_is_not_taken(store: SqliteStore) -> None:
    with store.transaction():
        store.cache.remember([success("a", ended_at_s=9.0), success("b", ended_at_s=10.0)])
    later = ReuseScope(("u1",), shared=True, after_s=9.0)
    assert set(store.cache.recall("t", later)) == {"b"}
    assert store.cache.get("t", "a", later) is None


def test_an_heir_has_what_the_object_had_whose_place_it_takes(store: SqliteStore) -> None:
    with store.transaction():
        store.cache.remember([success("a"), success("b")])
        store.cache.hand_on("u1", "u2")
        store.cache.forget("u1")
    heir = ReuseScope(("u2",))
    assert set(store.cache.recall("t", heir)) == {"a", "b"}
    assert store.cache.get("t", "a", heir) == replace(success("a"), owner="u2")


def test_a_success_that_is_put_aside_serves_nobody(store: SqliteStore) -> None:
    with store.transaction():
        store.cache.remember([success("a"), success("b")])
        store.cache.put_aside(["run-u1-a"])
    assert set(store.cache.recall("t", OWN)) == {"b"}


def test_the_oldest_successes_go_when_there_are_too_many_or_too_large(store: SqliteStore) -> None:
    few = SqliteCache(store._session, rows_max=3)
    with store.transaction():
        few.remember([success(unit) for unit in "abc"])
        few.remember([success("a"), success("d")])
    assert set(few.recall("t", OWN)) == {"c", "a", "d"}
    small = SqliteCache(store._session, bytes_max=4_000)
    with store.transaction():
        small.remember([success("e", result="x" * 4_000), success("f", result="x" * 4_000)])
    assert set(small.recall("t", OWN)) == {"f"}
