"""Fields that people set by hand and no file ever had."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.apply.local_proposal import format_diff
from fleetctl.apply.propose import propose_changes
from fleetctl.apply.request import ApplyOptions
from fleetctl.apply.write import commit
from fleetctl.apply.write.commit import ObjectEdits, manifest_with
from fleetctl.apply.write.store_changes import store_changes as commit_changes
from fleetctl.stores.sqlite.store import SqliteStore, open_memory_store
from fleetctl.tracking.annotations import FIELDS
from fleetctl.tracking.by_hand import digest_of, has_drifted
from fleetctl.tracking.kept_by import KeptBy
from tests.unit.engine.fake_world import ManualClock, tasks
from tests.unit.engine.test_engine_desired import applied, job, manifest

KEY = ("BatchJob", "job")


@pytest.fixture
def store() -> SqliteStore:
    return open_memory_store(ManualClock())


def edit(store: SqliteStore, *fields: str, **more: Any) -> None:
    draft = manifest_with(store, *KEY, ObjectEdits(fields=fields, **more))
    commit_changes(store, propose_changes(store, [draft], ApplyOptions(by_hand=True), 6.0), 6.0)


def spec_of(store: SqliteStore) -> dict[str, Any]:
    row = store.resources.get(*KEY)
    assert row is not None
    found: dict[str, Any] = json.loads(row.spec)
    return found


def words_of(store: SqliteStore) -> dict[str, str]:
    row = store.resources.get(*KEY)
    assert row is not None
    return row.labels


def test_a_suspended_job_stays_suspended_by_an_apply_of_its_file(store: SqliteStore) -> None:
    applied(store, job())
    commit.suspend_object(store, *KEY, 6.0)
    assert applied(store, job()) == [("batchjob/job", "unchanged", "suspend set by hand stays")]
    assert spec_of(store)["suspend"] is True
    applied(store, job(backoffLimitPerIndex=2))
    assert spec_of(store)["suspend"] is True
    assert spec_of(store)["backoffLimitPerIndex"] == 2


def test_a_resumed_job_is_suspended_again_by_a_file_that_says_so(store: SqliteStore) -> None:
    applied(store, job(suspend=True))
    commit.suspend_object(store, *KEY, 6.0, wanted=False)
    applied(store, job(suspend=True))
    assert spec_of(store)["suspend"] is True


def test_a_file_that_says_not_suspended_resumes(store: SqliteStore) -> None:
    applied(store, job(suspend=False))
    commit.suspend_object(store, *KEY, 6.0)
    applied(store, job(suspend=False))
    assert "suspend" not in spec_of(store)


def test_a_field_that_the_file_had_and_lost_is_unset(store: SqliteStore) -> None:
    applied(store, job(parallelism=4))
    edit(store, "parallelism=2", "maxFailedIndexes=3")
    assert (spec_of(store)["parallelism"], spec_of(store)["maxFailedIndexes"]) == (2, 3)
    applied(store, job())
    assert "parallelism" not in spec_of(store)
    assert spec_of(store)["maxFailedIndexes"] == 3


def test_a_default_that_the_file_said_and_lost_is_unset(store: SqliteStore) -> None:
    applied(store, job(suspend=False))
    commit.suspend_object(store, *KEY, 6.0)
    applied(store, job())
    assert "suspend" not in spec_of(store)


def test_what_the_file_takes_over_goes_with_the_file(store: SqliteStore) -> None:
    applied(store, job())
    edit(store, "parallelism=4")
    assert applied(store, job(parallelism=4)) == [("batchjob/job", "unchanged", "")]
    assert applied(store, job())[0][1] == "configured"
    assert "parallelism" not in spec_of(store)


def test_labels_and_annotations_by_hand_stay_and_those_of_the_file_are_its_own(
    store: SqliteStore,
) -> None:
    filed = manifest("BatchJob", "job", tasks(2), team="rlm")
    applied(store, filed)
    edit(store, labels={"stage": "prod", "team": "other"}, annotations={"note": "ask Ada"})
    applied(store, filed)
    assert words_of(store) == {"stage": "prod", "team": "rlm"}
    row = store.resources.get(*KEY)
    assert row is not None and row.annotations["note"] == "ask Ada"
    edit(store, labels={"stage": None})
    applied(store, filed)
    assert words_of(store) == {"team": "rlm"}


def test_a_field_below_a_block_of_the_file_stays(store: SqliteStore) -> None:
    filed = job(retry={"backoff": {"initial": 5}})
    applied(store, filed)
    edit(store, "retry.backoff.max=77")
    applied(store, filed)
    assert spec_of(store)["retry"]["backoff"] == {"initial": 5.0, "max": 77.0}


def test_a_field_that_does_not_go_with_the_file_gives_way(store: SqliteStore) -> None:
    applied(store, job())
    edit(store, "budget.maxCost=3", "placement.ordered=" + '[{"provider": "local"}]')
    applied(store, job(placement={"anyOf": [{"provider": "local"}]}))
    assert "ordered" not in spec_of(store)["placement"]
    assert spec_of(store)["budget"]["maxCost"] == 3


def test_a_diff_shows_what_an_apply_would_do_to_it(store: SqliteStore) -> None:
    applied(store, job(parallelism=4))
    edit(store, "parallelism=2", "maxFailedIndexes=3")
    (change,) = propose_changes(store, [job(parallelism=4)], ApplyOptions(), 7.0)
    lines = list(format_diff(change))
    assert "-  parallelism: 2" in lines
    assert "+  parallelism: 4" in lines
    assert not any(line[:1] in "+-" and "maxFailedIndexes" in line for line in lines)
    assert any(line.startswith("#") and "maxFailedIndexes" in line for line in lines)


def test_what_the_repository_never_had_is_no_drift(store: SqliteStore) -> None:
    applied(store, job(parallelism=4))
    row = store.resources.get(*KEY)
    assert row is not None
    note = KeptBy("source/x", "f.yaml:1", "c" * 40, digest_of(row))
    commit.suspend_object(store, *KEY, 6.0)
    row = store.resources.get(*KEY)
    assert row is not None
    assert row.annotations[FIELDS]
    assert not has_drifted(row, note)
    edit(store, "parallelism=2")
    row = store.resources.get(*KEY)
    assert row is not None
    assert has_drifted(row, note)


FIELD_VALUES = {
    "suspend": (None, True),
    "parallelism": (None, 1, 2),
    "maxFailedIndexes": (None, 5, 6),
}
A_FIELD = st.sampled_from(sorted(FIELD_VALUES)).flatmap(
    lambda name: st.tuples(st.just(name), st.sampled_from(FIELD_VALUES[name]))
)
STEPS = st.lists(st.tuples(st.sampled_from(("file", "hand")), st.lists(A_FIELD, max_size=3)))


@given(STEPS)
def test_files_and_hands_are_merged_as_kubectl_merges_them(
    steps: list[tuple[str, list[tuple[str, Any]]]],
) -> None:
    """The model: last applied, live and the file, field by field."""
    store = open_memory_store(ManualClock())
    applied(store, job())
    last: dict[str, Any] = {}
    live: dict[str, Any] = {}
    for who, fields in steps:
        wanted = {name: value for name, value in fields if value is not None}
        if who == "file":
            applied(store, job(**wanted))
            live = {key: it for key, it in live.items() if key not in last} | wanted
            last = wanted
        elif fields:
            edit(store, *(f"{name}={json.dumps(value)}" for name, value in fields))
            for name, value in fields:
                live.pop(name, None)
                if value is not None:
                    live[name] = value
        shown = {key: it for key, it in spec_of(store).items() if key in FIELD_VALUES}
        assert shown == live
